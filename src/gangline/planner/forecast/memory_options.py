"""Memory savings: which values of `train.memory` a shape supports, and what `auto` resolves to. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

from gangline.planner.forecast.memory import SHARES, Fit
from gangline.planner.shapes.shape import Shape
from gangline.spec.config.line import Line
from gangline.spec.plan import Device, Memory
from gangline.spec.profile import ModelProfile

CHUNKS = 8
"""Pieces of head and loss, where logits are what does not fit."""
_OFFLOAD = "train.memory.offload"


SYNC_EFFORT = 10
"""Effort of gradients that are reduced after each micro-batch: more than all that is computed again."""
OFFLOAD_EFFORT = 100
"""Effort from which on shards wait on the host."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShapeSetting:
    """How a shape is run: what it takes at once, what that costs, and whether a rank holds it."""

    micro_batch: int
    memory: Memory
    fit: Fit

    @property
    def effort(self) -> int:
        """Grows with the time that is given up for memory; 0: nothing is."""
        return effort(self.memory)


def effort(memory: Memory) -> int:
    """A loss in pieces computes its head again, `full` all blocks; gradients of each pass are sent as often; a host is
    slower than all of it."""
    words = list(SHARES)
    word = memory.activation_checkpointing
    again = words.index(word) if word in words else words.index("full")
    sends = SYNC_EFFORT * (memory.gradient_sync == "each")
    return 2 * again + (memory.loss_chunks > 1) + sends + OFFLOAD_EFFORT * (memory.offload == "cpu")


def memories(line: Line, shape: Shape, device: Device, profile: ModelProfile | None) -> Iterator[Memory]:
    """What `train.memory` leaves open, cheapest first: nothing is recomputed or moved without need.

    Args:
        line: What it says of a key is what is yielded.
        shape: That is to be run so.
        device: That it runs on.
        profile: Of the model; None: nothing is known of it.
    """
    requested = line.train.memory.offload
    offloads = ["none"] if requested == "auto" else [requested]
    if requested == "auto" and device == "cuda" and shape.wrapping.shards and profile is not None:
        offloads.append("cpu")
    syncs = gradient_syncs(line, shape, device, profile)
    words, pieces = _checkpointing_values(line, shape, profile), _chunks(line, shape, profile)
    for offload, sync, word, chunks in product(offloads, syncs, words, pieces):
        yield Memory(activation_checkpointing=word, loss_chunks=chunks, offload=offload, gradient_sync=sync)  # type: ignore[arg-type]  # words of its keys


def gradient_syncs(
    line: Line, shape: Shape, device: Device, profile: ModelProfile | None
) -> list[Literal["last", "each"]]:
    """Values that the line asks for, where there are shards that can; a pipeline reduces after its last micro-batch.

    Left open, `each` comes after all that is computed again, and on GPUs only.
    """
    requested = line.train.memory.gradient_sync
    if not shape.wrapping.shards or shape.mesh.pp > 1 or requested == "last":
        return ["last"]
    if requested == "each":
        return ["each"]
    plain = line.train.compression.kind in ("none", "bf16") and profile is not None and bool(profile.traces)
    return ["last", "each"] if device == "cuda" and plain else ["last"]


def _checkpointing_values(line: Line, shape: Shape, profile: ModelProfile | None) -> list[str]:
    requested = line.train.memory.activation_checkpointing
    if requested != "auto":
        return [requested]
    if profile is None or profile.blocks == 0:
        return ["none"]
    return [word for word in SHARES if word != "selective" or shape.mesh.ep == 1]  # shards are gathered inside


def _chunks(line: Line, shape: Shape, profile: ModelProfile | None) -> list[int]:
    requested = line.train.memory.loss_chunks
    if requested != "auto":
        return [requested]
    known = profile is not None and profile.traces and "loss_chunks" not in profile.obstacles
    return [1, CHUNKS] if known and line.project.task is not None and shape.mesh.pp == 1 else [1]


def contradictions(line: Line) -> Iterator[str]:
    """What no shape and no device carries out, by key, with what works instead."""
    memory = line.train.memory
    if line.project.command and memory.loss_chunks not in ("auto", 1):
        yield (
            f"train.memory.loss_chunks: wanted 1, found {memory.loss_chunks}: a command has a loss of its own, "
            "the runtime cuts that of a task"
        )
    if line.train.compile and memory.offload == "activations":
        yield f'{_OFFLOAD}: "activations" does not work with train.compile; "none" works'


def offload_obstacle(line: Line, shape: Shape, device: Device) -> str | None:
    """Why `train.memory.offload` would do nothing for `shape`; None: it does something, or nothing is asked."""
    offload = line.train.memory.offload
    if offload in ("cpu", "activations") and device == "cpu":
        works = '"none" or "optimizer_nvme" works'
        return f'{_OFFLOAD}: "{offload}" is for accelerators, here everything is in host memory; {works}'
    if offload == "cpu" and not shape.wrapping.shards:
        return f'{_OFFLOAD}: "cpu" moves shards, and {shape.name} has none; fsdp has'
    if offload == "optimizer_nvme" and device != "cpu":
        works = '"cpu" works there, with fsdp'
        return f'{_OFFLOAD}: "optimizer_nvme" is for parameters in host memory, these are on {device}; {works}'
    return None
