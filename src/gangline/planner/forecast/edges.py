"""What a plan sends over the edges between servers: by which its stages and replicas are laid out on a fabric. Pure."""

from collections.abc import Sequence

from gangline.fabric.mapping import EdgeBytes
from gangline.fabric.order_paths import RingTraffic
from gangline.planner.forecast.exchange import Collective
from gangline.planner.forecast.traffic import PassLoad, data_messages, unknown_compression
from gangline.planner.forecast.widths import PASS_BYTES
from gangline.planner.shapes.shape import Shape
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Precision
from gangline.spec.profile import ModelProfile


def traced_rings(profile: ModelProfile, shape: Shape, load: PassLoad) -> list[RingTraffic]:
    """Rings of data-parallel ranks of an average stage."""
    rings: dict[tuple[int, int], list[Collective]] = {}
    for each in data_messages(profile, shape, load):
        rings.setdefault((each.ranks, each.rank_stride), []).append(each)
    return [
        RingTraffic(
            wire_bytes=sum(each.wire_bytes for each in found), ranks=ranks, rank_stride=stride,
            steps=sum(each.steps for each in found),
        )
        for (ranks, stride), found in rings.items()
    ]  # fmt: skip


def edge_bytes(
    rings: Sequence[RingTraffic], profile: ModelProfile, mesh: Mesh, load: PassLoad, *, ranks_per_server: int
) -> EdgeBytes | None:
    """Bytes of one rail in a step, on an edge of each ring over servers and between stages; None: not known.

    Args:
        rings: Of data-parallel ranks of an average stage.
        profile: Of the model.
        mesh: Of the plan.
        load: Of a step.
        ranks_per_server: Of the gang.
    """
    handed = _handed_bytes(profile, load.precision)
    if (mesh.pp > 1 and handed is None) or unknown_compression(profile, load.compression):
        return None
    samples, servers = load.micro_batch * load.micro_batches, _expert_servers(mesh, ranks_per_server)
    return EdgeBytes(
        data=sum(each.rail_bytes(ranks_per_server) for each in rings),
        stage=2.0 * samples * (handed or 0.0) / mesh.tp if mesh.pp > 1 else 0.0,
        expert=_expert_bytes(profile, mesh, load, ranks_per_server) if servers > 1 else 0.0,
        expert_servers=servers,
    )


def _expert_servers(mesh: Mesh, ranks_per_server: int) -> int:
    """Whole servers that share experts; 1 where they share none with another, or parts of servers."""
    servers, left = divmod(mesh.ep * mesh.tp, ranks_per_server)
    return servers if mesh.ep > 1 and servers > 1 and not left else 1


def _expert_bytes(profile: ModelProfile, mesh: Mesh, load: PassLoad, ranks_per_server: int) -> float:
    """Bytes of one rail in a step between two servers of an expert group: what a rank sends to each peer there, rows
    there and back, forward and backward, once more where blocks are computed again."""
    trace, model = profile.trace(load.precision), profile.transformer
    if trace is not None:
        entries = sum(unit.count * unit.expert_entries for unit in trace.units)
    else:
        entries = model.layers * model.active_experts * model.sequence * model.width / mesh.tp if model else 0.0
    passes = 6 if load.checkpointing == "full" else 4
    samples, width = load.micro_batch * load.micro_batches, PASS_BYTES[load.precision]
    sent = passes * samples * entries * width / (mesh.pp * mesh.cp)
    return sent / mesh.ep * (ranks_per_server // mesh.tp)


def _handed_bytes(profile: ModelProfile, precision: Precision) -> float | None:
    """Bytes of one sample, from a block to the next."""
    trace, model = profile.trace(precision), profile.transformer
    if trace is not None:
        return next((unit.boundary_bytes for unit in reversed(trace.units) if unit.name), None)
    return None if model is None else model.sequence * model.width * PASS_BYTES[precision]
