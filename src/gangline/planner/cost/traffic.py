"""What the ranks of a traced plan exchange in one step, and what goes over the edges between servers. Pure.

Sizes are those of the whole tensor on a rank that has all of it. What experts send each other depends on the routing of
each batch: here every expert gets equally many rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil

from gangline.fabric.placement.mapping import EdgeBytes
from gangline.fabric.traffic.order_paths import RingTraffic
from gangline.planner.cost.averaging import bucket_count, messages, needs_shapes, shard_bytes
from gangline.planner.cost.exchange import Collective
from gangline.planner.cost.optimizer import matrix_updates
from gangline.planner.layouts.layout import Layout
from gangline.planner.settings import GRADIENT_BYTES, PASS_BYTES, StepLoad
from gangline.spec.compression import Compression
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Precision
from gangline.spec.profile import ModelProfile, Unit

_COUNT_BYTES = 8
"""Size of the number of rows that an expert gets."""


def collectives(profile: ModelProfile, layout: Layout, load: StepLoad) -> list[Collective]:
    """All of a step, of one rank."""
    return [
        *data_messages(profile, layout, load),
        *_tensor_peers(profile, layout, load),
        *_sequence_peers(profile, layout, load),
        *_stage_messages(profile, layout, load),
        *_experts(profile, layout, load),
        *(matrix_updates(work, layout.update_mesh) if (work := profile.matrix_work) else ()),
    ]


def data_messages(profile: ModelProfile, layout: Layout, load: StepLoad) -> list[Collective]:
    """Those of data-parallel ranks, the new parameters of a shared optimizer included."""
    return [*_shard_messages(profile, layout, load), *_replica_messages(profile, layout, load)]


def unknown_traffic(profile: ModelProfile, layout: Layout, load: StepLoad) -> str:
    """Why the traffic is not known before the run; empty: it is known."""
    if layout.mesh.ep > 1 and not any(unit.expert_entries for unit, _ in _units(profile, layout, load)):
        return "the traffic of its experts is not known"
    return unknown_compression(profile, load.compression)


def unknown_compression(profile: ModelProfile, compression: Compression) -> str:
    """Why it is not known what it leaves of gradients; empty: it is known."""
    if needs_shapes(compression) and not profile.shapes:
        return f"what {compression.kind} leaves of gradients depends on their shapes, which are not known"
    return ""


def _shard_messages(profile: ModelProfile, layout: Layout, load: StepLoad) -> Iterator[Collective]:
    """FSDP2: whole blocks before each pass, gradients after the last micro-batch; the root's stay until backward."""
    mesh = layout.mesh
    ranks = mesh.dp_shard * mesh.cp
    if ranks == 1:
        return
    width = PASS_BYTES[load.precision]
    passes = 1 if mesh.pp > 1 else load.micro_batches
    _, reductions = load.rounds(layout.wrapping)
    reduced = shard_bytes(load.compression, averages_rarely=layout.traits.averages_rarely)
    for unit, count in _units(profile, layout, load):
        gathers = passes * (layout.wrapping.gathers if unit.name else 1)
        expert_entries = unit.expert_parameters if mesh.ep > 1 else 0
        for size, peers, rank_stride in ((unit.parameters - expert_entries, ranks, mesh.tp),
                                   (expert_entries / mesh.ep, ranks // mesh.ep, mesh.ep * mesh.tp)):  # fmt: skip
            if size and peers > 1:
                yield Collective(
                    part="communication", kind="all_gather", size_bytes=width * size / mesh.tp, ranks=peers,
                    count=gathers * count, rank_stride=rank_stride,
                )  # fmt: skip
                yield Collective(
                    part="communication", kind="reduce_scatter", size_bytes=reduced * size / mesh.tp,
                    ranks=peers, count=reductions * count, rank_stride=rank_stride,
                )  # fmt: skip


def _replica_messages(profile: ModelProfile, layout: Layout, load: StepLoad) -> Iterator[Collective]:
    """Gradients of whole copies, or of equal shards; zero1 deals out its new parameters besides."""
    mesh = layout.mesh
    if mesh.dp_replicate == 1:
        return
    shards = mesh.dp_shard * mesh.cp
    entries, rank_stride = num_averaged(profile, layout), shards * mesh.tp
    shapes = [replace(shape, rows=ceil(shape.rows / shards)) for shape in profile.shapes]
    buckets, (_, reductions) = num_buckets(profile, layout, load), load.rounds(layout.wrapping)
    for kind, size in messages(entries, shapes, load.compression, ranks=mesh.dp_replicate):
        yield Collective(
            part="communication", kind=kind, size_bytes=size / buckets, ranks=mesh.dp_replicate,
            count=reductions * buckets / load.outer_steps, rank_stride=rank_stride,
        )  # fmt: skip
    if layout.wrapping.shares_optimizer:
        owned = profile.matrix_work.parameters / (mesh.pp * mesh.tp * shards) if profile.matrix_work else 0.0
        yield Collective(
            part="optimizer", kind="all_gather", size_bytes=GRADIENT_BYTES * (entries - owned),
            ranks=mesh.dp_replicate, count=1, rank_stride=rank_stride,
        )  # fmt: skip


def num_averaged(profile: ModelProfile, layout: Layout) -> float:
    """Entries of gradients that a rank averages with its replicas."""
    mesh = layout.mesh
    return profile.parameters / (mesh.pp * mesh.tp * mesh.dp_shard * mesh.cp)


def num_buckets(profile: ModelProfile, layout: Layout, load: StepLoad) -> int:
    """Messages that they travel in."""
    given = load.bucket_bytes if layout.traits.has_buckets else None
    return bucket_count(GRADIENT_BYTES * num_averaged(profile, layout), given)


def _tensor_peers(profile: ModelProfile, layout: Layout, load: StepLoad) -> Iterator[Collective]:
    """The stream between blocks, twice forward and twice backward, once more each where the block is computed again.

    These are not timed apart from the passes that they are part of.
    """
    mesh = layout.mesh
    if mesh.tp == 1:
        return
    times = 6 if load.memory.activation_checkpointing == "full" else 4
    for unit, count in _units(profile, layout, load):
        if unit.name:
            yield Collective(
                part="compute", kind="all_reduce", size_bytes=load.micro_batch * unit.boundary_bytes / mesh.cp,
                ranks=mesh.tp, count=times * count * load.micro_batches,
            )  # fmt: skip


def _sequence_peers(profile: ModelProfile, layout: Layout, load: StepLoad) -> Iterator[Collective]:
    """Keys and values go round once forward, and with their gradients once more backward."""
    mesh = layout.mesh
    if mesh.cp == 1:
        return
    for unit, count in _units(profile, layout, load):
        if unit.name:
            yield Collective(
                part="communication", kind="send",
                size_bytes=2 * load.micro_batch * unit.boundary_bytes / (mesh.cp * mesh.tp), ranks=2,
                count=3 * (mesh.cp - 1) * count * load.micro_batches, rank_stride=mesh.tp, peers=mesh.cp,
            )  # fmt: skip


def _stage_messages(profile: ModelProfile, layout: Layout, load: StepLoad) -> Iterator[Collective]:
    """What a stage hands to the next, and its gradient back."""
    mesh = layout.mesh
    blocks = [unit for unit, _ in _units(profile, layout, load) if unit.name]
    if mesh.pp > 1 and blocks:
        yield Collective(
            part="communication", kind="send", size_bytes=load.micro_batch * blocks[-1].boundary_bytes / mesh.cp,
            ranks=2, count=2 * load.micro_batches, rank_stride=mesh.world_size // mesh.pp, peers=mesh.pp,
        )  # fmt: skip


def _experts(profile: ModelProfile, layout: Layout, load: StepLoad) -> Iterator[Collective]:
    """Rows there and back, and their gradients; the number of rows is sent before, and waited for.

    The rows are not timed apart from the passes that they are part of.
    """
    mesh = layout.mesh
    if mesh.ep == 1:
        return
    width = PASS_BYTES[load.precision]
    forwards = 2 if load.memory.activation_checkpointing == "full" else 1
    for unit, count in _units(profile, layout, load):
        if unit.expert_entries:
            passes = count * load.micro_batches
            yield Collective(
                part="compute", kind="all_to_all", size_bytes=load.micro_batch * width * unit.expert_entries / mesh.cp,
                ranks=mesh.ep, count=2 * (1 + forwards) * passes, rank_stride=mesh.tp,
            )  # fmt: skip
            yield Collective(
                part="communication", kind="all_to_all", size_bytes=_COUNT_BYTES * (profile.experts or mesh.ep),
                ranks=mesh.ep, count=forwards * passes, rank_stride=mesh.tp,
            )  # fmt: skip


def _units(profile: ModelProfile, layout: Layout, load: StepLoad) -> list[tuple[Unit, float]]:
    """Each unit, and how many of it one rank of a pipeline has on average."""
    trace = profile.trace(load.precision)
    whole = Unit(name="", parameters=profile.parameters, flops=0.0, saved_bytes=0.0, boundary_bytes=0.0)
    return [(unit, unit.count / layout.mesh.pp) for unit in (trace.units if trace else (whole,))]


def traced_rings(profile: ModelProfile, layout: Layout, load: StepLoad) -> list[RingTraffic]:
    """Rings of data-parallel ranks of an average stage."""
    rings: dict[tuple[int, int], list[Collective]] = {}
    for message in data_messages(profile, layout, load):
        rings.setdefault((message.ranks, message.rank_stride), []).append(message)
    return [
        RingTraffic(
            wire_bytes=sum(collective.wire_bytes for collective in ring), ranks=ranks, rank_stride=stride,
            steps=sum(collective.steps for collective in ring),
        )
        for (ranks, stride), ring in rings.items()
    ]  # fmt: skip


def edge_bytes(
    rings: Sequence[RingTraffic], profile: ModelProfile, mesh: Mesh, load: StepLoad, *, ranks_per_server: int
) -> EdgeBytes | None:
    """Bytes of one rail in a step, on an edge of each ring over servers and between stages; None: not known.

    `rings` are those of data-parallel ranks of an average stage.
    """
    handed = _handed_bytes(profile, load.precision)
    if (mesh.pp > 1 and handed is None) or unknown_compression(profile, load.compression):
        return None
    samples, servers = load.micro_batch * load.micro_batches, _expert_servers(mesh, ranks_per_server)
    return EdgeBytes(
        data=sum(ring.rail_bytes(ranks_per_server) for ring in rings),
        stage=2.0 * samples * (handed or 0.0) / mesh.tp if mesh.pp > 1 else 0.0,
        expert=_expert_bytes(profile, mesh, load, ranks_per_server) if servers > 1 else 0.0,
        expert_servers=servers,
    )


def _expert_servers(mesh: Mesh, ranks_per_server: int) -> int:
    """Whole servers that share experts; 1 where they share none with another, or parts of servers."""
    servers, left = divmod(mesh.ep * mesh.tp, ranks_per_server)
    return servers if mesh.ep > 1 and servers > 1 and not left else 1


def _expert_bytes(profile: ModelProfile, mesh: Mesh, load: StepLoad, ranks_per_server: int) -> float:
    """Bytes of one rail in a step between two servers of an expert group: what a rank sends to each peer there, rows
    there and back, forward and backward, once more where blocks are computed again."""
    trace, model = profile.trace(load.precision), profile.transformer
    if trace is not None:
        entries = sum(unit.count * unit.expert_entries for unit in trace.units)
    else:
        entries = model.layers * model.active_experts * model.sequence * model.width / mesh.tp if model else 0.0
    passes = 6 if load.memory.activation_checkpointing == "full" else 4
    samples, width = load.micro_batch * load.micro_batches, PASS_BYTES[load.precision]
    sent = passes * samples * entries * width / (mesh.pp * mesh.cp)
    return sent / mesh.ep * (ranks_per_server // mesh.tp)


def _handed_bytes(profile: ModelProfile, precision: Precision) -> float | None:
    """Bytes of one sample, from a block to the next."""
    trace, model = profile.trace(precision), profile.transformer
    if trace is not None:
        return next((unit.boundary_bytes for unit in reversed(trace.units) if unit.name), None)
    return None if model is None else model.sequence * model.width * PASS_BYTES[precision]
