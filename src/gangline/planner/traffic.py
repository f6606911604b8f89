"""What the ranks of a plan exchange in one step: which collective, of how many bytes, how often. Pure.

Sizes are those of the whole tensor on a rank that has all of it. What experts send each other depends on the routing of
each batch and is not known before.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gangline.planner.candidates import Shape
from gangline.spec.plan import Device, Precision
from gangline.spec.profile import ModelProfile, Unit
from gangline.spec.rates import Exchange

GRADIENT_BYTES = 4
"""Gradients are reduced in float32, whatever the passes compute in."""
BUCKET_BYTES = 25 * 2**20
"""Of DDP's buckets but the first, where the line leaves them to torch."""
_SQUEEZED = {"none": 1.0, "fp16": 0.5, "bf16": 0.5, "int8": 0.26}
"""Of gradients on DDP's wire; int8 has a scale for every 256 values."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
    """One kind of message in a step."""

    part: str
    """Of the step, that it is booked under."""
    kind: Exchange
    size_bytes: float
    ranks: int
    count: float
    """Times a step; below 1: not in every one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What the passes of a step look like on one data-parallel rank."""

    micro_batch: int
    micro_batches: int
    precision: Precision
    checkpointing: str = "none"
    compression: str = "none"
    outer_steps: int = 1
    """Steps between two exchanges of drifting replicas."""


def collectives(profile: ModelProfile, shape: Shape, load: Load) -> list[Collective]:
    """All of a step, of one rank."""
    return [
        *_shards(profile, shape, load),
        *_copies(profile, shape, load),
        *_tensor_peers(profile, shape, load),
        *_sequence_peers(profile, shape, load),
        *_stages(profile, shape, load),
    ]


def unknown_traffic(shape: Shape, load: Load) -> str:
    """Why nobody can say before the run what is exchanged; empty: it is known."""
    if shape.mesh.ep > 1:
        return "what experts exchange is decided by their router"
    if load.compression not in _SQUEEZED:
        return f"what {load.compression} leaves of gradients depends on their shapes"
    return ""


def wire_bytes(messages: list[Collective], *, device: Device) -> float:
    """That one rank sends in a step, in rings as NCCL and gloo make them; gloo reduces whole, then cuts."""
    return sum(each.count * each.size_bytes * sent_share(each.kind, each.ranks, device) for each in messages)


def sent_share(kind: Exchange, ranks: int, device: Device) -> float:
    """Bytes that a rank sends for each byte of the tensor.

    Source:
        NVIDIA/nccl-tests, doc/PERFORMANCE.md, for rings.
    """
    if kind == "send":
        return 1.0
    whole = kind == "all_reduce" or (kind == "reduce_scatter" and device == "cpu")
    return (2 if whole else 1) * (ranks - 1) / ranks


def _shards(profile: ModelProfile, shape: Shape, load: Load) -> Iterator[Collective]:
    """FSDP2: whole blocks before each pass, gradients after the last micro-batch; the root's stay until backward."""
    mesh = shape.mesh
    ranks = mesh.dp_shard * mesh.cp
    if ranks == 1:
        return
    width = GRADIENT_BYTES if load.precision == "fp32" else 2
    passes = 1 if mesh.pp > 1 else load.micro_batches
    keeps = shape.strategy == "zero2" or mesh.pp > 1
    for unit, count in _units(profile, shape, load):
        gathers = passes if keeps or not unit.name else 2 * passes
        yield Collective(
            part="communication", kind="all_gather", size_bytes=width * unit.parameters / mesh.tp, ranks=ranks,
            count=gathers * count,
        )  # fmt: skip
        yield Collective(
            part="communication", kind="reduce_scatter", size_bytes=GRADIENT_BYTES * unit.parameters / mesh.tp,
            ranks=ranks, count=count,
        )  # fmt: skip


def _copies(profile: ModelProfile, shape: Shape, load: Load) -> Iterator[Collective]:
    """Gradients of whole copies, or of equal shards; zero1 deals out its new parameters besides."""
    mesh = shape.mesh
    if mesh.dp_replicate == 1:
        return
    held = GRADIENT_BYTES * profile.parameters / (mesh.pp * mesh.tp * mesh.dp_shard * mesh.cp)
    size = held * _SQUEEZED.get(load.compression, 1.0)
    buckets = max(1.0, -(-size // BUCKET_BYTES))
    yield Collective(
        part="communication", kind="all_reduce", size_bytes=size / buckets, ranks=mesh.dp_replicate,
        count=buckets / load.outer_steps,
    )  # fmt: skip
    if shape.strategy == "zero1":
        yield Collective(
            part="optimizer", kind="all_gather", size_bytes=held, ranks=mesh.dp_replicate, count=1,
        )  # fmt: skip


def _tensor_peers(profile: ModelProfile, shape: Shape, load: Load) -> Iterator[Collective]:
    """The stream between blocks, twice forward and twice backward, once more each where the block is computed again.

    Nobody times these apart from the passes that they are part of.
    """
    mesh = shape.mesh
    if mesh.tp == 1:
        return
    times = 6 if load.checkpointing == "full" else 4
    for unit, count in _units(profile, shape, load):
        if unit.name:
            yield Collective(
                part="compute", kind="all_reduce", size_bytes=load.micro_batch * unit.boundary_bytes / mesh.cp,
                ranks=mesh.tp, count=times * count * load.micro_batches,
            )  # fmt: skip


def _sequence_peers(profile: ModelProfile, shape: Shape, load: Load) -> Iterator[Collective]:
    """Keys and values go round once forward, and with their gradients once more backward."""
    mesh = shape.mesh
    if mesh.cp == 1:
        return
    for unit, count in _units(profile, shape, load):
        if unit.name:
            yield Collective(
                part="communication", kind="send",
                size_bytes=2 * load.micro_batch * unit.boundary_bytes / (mesh.cp * mesh.tp), ranks=2,
                count=3 * (mesh.cp - 1) * count * load.micro_batches,
            )  # fmt: skip


def _stages(profile: ModelProfile, shape: Shape, load: Load) -> Iterator[Collective]:
    """What a stage hands to the next, and its gradient back."""
    mesh = shape.mesh
    blocks = [unit for unit, _ in _units(profile, shape, load) if unit.name]
    if mesh.pp > 1 and blocks:
        yield Collective(
            part="communication", kind="send", size_bytes=load.micro_batch * blocks[-1].boundary_bytes / mesh.cp,
            ranks=2, count=2 * load.micro_batches,
        )  # fmt: skip


def _units(profile: ModelProfile, shape: Shape, load: Load) -> list[tuple[Unit, float]]:
    """Each unit, and how many of it one rank of a pipeline has on average."""
    trace = profile.trace(load.precision)
    whole = Unit(name="", parameters=profile.parameters, flops=0.0, saved_bytes=0.0, boundary_bytes=0.0)
    return [(unit, unit.count / shape.mesh.pp) for unit in (trace.units if trace else (whole,))]
