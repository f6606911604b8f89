"""How a layout is run: what `train.memory` leaves open, the passes of a step, widths of their numbers. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import product
from math import inf

from gangline.planner.layouts.enumerate import Sync
from gangline.planner.layouts.layout import Layout
from gangline.spec.compression import Compression
from gangline.spec.config.line import Line
from gangline.spec.config.optimizer import ADAMW_MOMENT_BYTES
from gangline.spec.forecast import MemoryCause
from gangline.spec.plan import Device, Memory, PipelineSchedule, Precision
from gangline.spec.profile import ModelProfile
from gangline.spec.strategies import Wrapping, outer_interval

WEIGHT_BYTES = 4
"""Bytes of a master weight on a rank and in a checkpoint; the optimizer's moments come on top."""

GRADIENT_BYTES = 4
"""Bytes of a gradient: held and reduced in float32, whatever the passes compute in."""

FORWARD, BACKWARD = 1 / 3, 2 / 3
"""Shares of the work of both passes."""

PASS_BYTES: Mapping[Precision, int] = {"fp32": 4, "bf16": 2, "fp16": 2}
"""Bytes of a number in the passes, by their precision."""

SHARES = {"none": 1.0, "selective": 0.8, "full": 0.15}
"""Activations kept by a word of `activation_checkpointing`, rounded up from what transformer blocks keep; cheaper ones
first."""


def block_interval(word: str) -> float:
    """Blocks of which one is computed again by a word of `activation_checkpointing`; infinite: none is."""
    return {"none": inf, "selective": inf, "full": 1.0}.get(word) or int(word.removeprefix("every_"))


@dataclass(frozen=True, slots=True)
class Fit:
    """What one rank needs and what it may hold; None: not known."""

    need_bytes: float | None
    usable_bytes: float | None
    cause: str = ""
    """What takes most of the need, with its bytes."""
    causes: tuple[MemoryCause, ...] = ()
    """What the need consists of; empty: not known."""

    @property
    def holds(self) -> bool:
        """True also where nothing is known: a plan is refused for a reason only."""
        return self.need_bytes is None or self.usable_bytes is None or self.need_bytes <= self.usable_bytes

    @property
    def ratio(self) -> float | None:
        """Need in devices; None: not known."""
        if self.need_bytes is None or self.usable_bytes is None:
            return None
        return self.need_bytes / self.usable_bytes if self.usable_bytes else float("inf")


CHUNKS = 8
"""Pieces of head and loss, where logits are what does not fit."""


SYNC_EFFORT = 10
"""Effort of gradients that are reduced after each micro-batch: more than all that is computed again."""

OFFLOAD_EFFORT = 100
"""Effort from which on shards wait on the host."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """How a layout is run."""

    micro_batch: int
    precision: Precision
    memory: Memory = Memory()
    schedule: PipelineSchedule | None = None
    """None: no pipeline that could be played."""

    def words(self, line: Line) -> str:
        """What tells two runs of one layout apart."""
        parts = [f"micro_batch {self.micro_batch}"]
        again, chunks = self.memory.activation_checkpointing, self.memory.loss_chunks
        parts += [f"{again} computed again"] if again != "none" else []
        parts += [f"loss in {chunks} pieces"] if chunks > 1 else []
        parts += ["gradients reduced each pass"] if self.memory.gradient_sync == "each" else []
        parts += ["shards on the host"] if self.memory.offload == "cpu" else []
        parts += [line.train.compression.kind] if line.train.compression.kind != "none" else []
        return ", ".join([*parts, self.schedule or ""]).removesuffix(", ")


@dataclass(frozen=True, kw_only=True, slots=True)
class StepLoad(Setting):
    """What the passes of a step look like on one data-parallel rank, and what it holds and sends meanwhile."""

    micro_batches: int = 1
    """Micro-batches of one step: shards meet once a step, so that until then more than one has whole gradients."""
    live: float = 1.0
    """Micro-batches whose activations a rank of a pipeline holds at once, each of its own stages."""
    compression: Compression = Compression()
    outer_steps: int = 1
    """Steps between two exchanges of drifting replicas."""
    bucket_bytes: int | None = None
    """Size of DDP's buckets; None: torch's own."""
    moment_bytes: float = ADAMW_MOMENT_BYTES
    """Bytes that the optimizer keeps for each parameter."""

    def rounds(self, wrapping: Wrapping) -> tuple[int, int]:
        """Times that a rank gathers its shards, once or twice a micro-batch if it reshards, and that gradients are
        reduced."""
        shards = wrapping.shards and self.memory.gradient_sync == "each"
        return 2 * self.micro_batches if wrapping.reshards else 1, self.micro_batches if shards else 1


def step_load(line: Line, layout: Layout, setting: Setting) -> StepLoad:
    """Passes of a step of `layout` on one data-parallel rank, and how their gradients are averaged."""
    train = line.train
    return StepLoad(
        micro_batch=setting.micro_batch, precision=setting.precision, memory=setting.memory, schedule=setting.schedule,
        micro_batches=max(1, round(train.global_batch / layout.mesh.data_parallel / setting.micro_batch)),
        compression=train.compression, outer_steps=outer_interval(layout.strategy, train.compression.outer_steps),
        bucket_bytes=bucket_bytes(line),
    )  # fmt: skip


def bucket_bytes(line: Line) -> int | None:
    """Size of DDP's buckets; None: torch's own."""
    return None if line.train.mesh.bucket_bytes == "auto" else line.train.mesh.bucket_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedSetting:
    """What a layout takes at once, what that costs, and whether a rank holds it, as documents of a choice have it."""

    micro_batch: int
    memory: Memory
    fit: Fit

    @property
    def effort(self) -> int:
        """Grows with the time that is given up for memory; 0: nothing is."""
        return effort(self.memory)


def line_memory(line: Line) -> Memory:
    """What the line itself asks for; what it leaves open is not given up for memory."""
    table, names = line.train.memory, (field.name for field in fields(Memory))
    return Memory(**{name: value for name in names if (value := getattr(table, name)) != "auto"})


def effort(memory: Memory) -> int:
    """A loss in pieces computes its head again, `full` all blocks; gradients of each pass are sent as often; a host is
    slower than all of it."""
    words = list(SHARES)
    word = memory.activation_checkpointing
    again = words.index(word) if word in words else words.index("full")
    sends = SYNC_EFFORT * (memory.gradient_sync == "each")
    return 2 * again + (memory.loss_chunks > 1) + sends + OFFLOAD_EFFORT * (memory.offload == "cpu")


def memories(line: Line, layout: Layout, device: Device, profile: ModelProfile | None) -> Iterator[Memory]:
    """What `train.memory` leaves open, cheapest first: nothing is recomputed or moved without need."""
    asked, requested = line_memory(line), line.train.memory.offload
    offloads = ["none"] if requested == "auto" else [requested]
    if requested == "auto" and device == "cuda" and layout.wrapping.shards and profile is not None:
        offloads.append("cpu")
    syncs = gradient_syncs(line, layout, device, profile)
    words, pieces = _checkpointing_values(line, layout, profile), _chunks(line, layout, profile)
    for offload, sync, word, chunks in product(offloads, syncs, words, pieces):
        yield replace(asked, activation_checkpointing=word, loss_chunks=chunks, offload=offload, gradient_sync=sync)  # type: ignore[arg-type]  # words of its keys


def gradient_syncs(line: Line, layout: Layout, device: Device, profile: ModelProfile | None) -> list[Sync]:
    """Values that the line asks for, where there are shards that can; a pipeline reduces after its last micro-batch.

    Left open, `each` comes after all that is computed again, and on GPUs only.
    """
    requested = line.train.memory.gradient_sync
    if not layout.wrapping.shards or layout.mesh.pp > 1 or requested == "last":
        return ["last"]
    if requested == "each":
        return ["each"]
    plain = line.train.compression.kind in ("none", "bf16") and profile is not None and bool(profile.traces)
    return ["last", "each"] if device == "cuda" and plain else ["last"]


def _checkpointing_values(line: Line, layout: Layout, profile: ModelProfile | None) -> list[str]:
    requested = line.train.memory.activation_checkpointing
    if requested != "auto":
        return [requested]
    if profile is None or profile.blocks == 0:
        return ["none"]
    return [word for word in SHARES if word != "selective" or layout.mesh.ep == 1]  # shards are gathered inside


def _chunks(line: Line, layout: Layout, profile: ModelProfile | None) -> list[int]:
    requested = line.train.memory.loss_chunks
    if requested != "auto":
        return [requested]
    known = profile is not None and profile.traces and "loss_chunks" not in profile.obstacles
    return [1, CHUNKS] if known and line.project.task is not None and layout.mesh.pp == 1 else [1]
