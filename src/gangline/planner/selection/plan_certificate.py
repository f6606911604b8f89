"""What a plan asks of the network, and its certificate: where its stages and replicas are on a fabric. Pure."""

from gangline.fabric.certificate import Certificate, PlanTraffic, certify
from gangline.fabric.inventory import Fabric
from gangline.fabric.mapping import EdgeBytes
from gangline.fabric.order_paths import RingTraffic, of_fewest_groups
from gangline.fabric.tiles import node_order
from gangline.planner.forecast.optimizer_model import OptimizerModel
from gangline.planner.forecast.shape_forecast import ExecutionOptions, pass_load
from gangline.planner.forecast.traffic import Collective, data_messages, unknown_compression
from gangline.planner.selection.choice import PlanChoice
from gangline.planner.selection.formula_question import averaging_of
from gangline.planner.shapes.shape import Shape
from gangline.planner.transformer.exchange import exchanges
from gangline.planner.transformer.layout import ModelLayout
from gangline.spec.config.line import Line
from gangline.spec.config.site import GpuTable
from gangline.spec.gang.podset import PipelineTraffic
from gangline.spec.plan import Precision
from gangline.spec.profile import ModelProfile
from gangline.spec.strategies import wrapping_of


def pipeline_traffic(choice: PlanChoice, profile: ModelProfile, *, line: Line) -> PipelineTraffic | None:
    """By which a placer puts the servers of a pipeline in order; None: there is none over servers, or not known."""
    mesh, tile = choice.mesh, choice.mesh.tile(choice.procs_per_node)
    cells = choice.num_nodes // tile
    edges = plan_edges(choice, profile, line=line)
    if mesh.pp == 1 or cells % mesh.pp or edges is None:
        return None
    return PipelineTraffic(
        stages=mesh.pp, data_edge_bytes=edges.data, stage_edge_bytes=edges.stage, expert_edge_bytes=edges.expert,
        expert_nodes=edges.expert_servers,
    )  # fmt: skip


def plan_edges(choice: PlanChoice, profile: ModelProfile, *, line: Line) -> EdgeBytes | None:
    """Bytes of one rail in a step on an edge of each ring over servers and between stages; None: not known."""
    mesh, handed = choice.mesh, _handed_bytes(profile, choice.precision)
    if (mesh.pp > 1 and handed is None) or unknown_compression(profile, line.train.compression):
        return None
    rings, global_batch = plan_rings(choice, profile, line=line), line.train.global_batch
    servers = _expert_servers(choice)
    return EdgeBytes(
        data=sum(each.rail_bytes(choice.procs_per_node) for each in rings),
        stage=2.0 * (global_batch // mesh.data_parallel) * (handed or 0.0) / mesh.tp if mesh.pp > 1 else 0.0,
        expert=_expert_bytes(choice, profile, global_batch=global_batch) if servers > 1 else 0.0,
        expert_servers=servers,
    )


def _expert_servers(choice: PlanChoice) -> int:
    """Whole servers that share experts; 1 where they share none with another, or parts of servers."""
    servers, left = divmod(choice.mesh.ep * choice.mesh.tp, choice.procs_per_node)
    return servers if choice.mesh.ep > 1 and servers > 1 and not left else 1


def _expert_bytes(choice: PlanChoice, profile: ModelProfile, *, global_batch: int) -> float:
    """Of one rail in a step from a server of an expert group to another one: what a rank sends to each peer there, rows
    there and back, forward and backward, once more where blocks are computed again."""
    mesh, trace, model = choice.mesh, profile.trace(choice.precision), profile.transformer
    if trace is not None:
        entries = sum(unit.count * unit.expert_entries for unit in trace.units)
    else:
        entries = model.layers * model.active_experts * model.sequence * model.width / mesh.tp if model else 0.0
    passes = 6 if choice.memory.activation_checkpointing == "full" else 4
    samples = global_batch // mesh.data_parallel
    sent = passes * samples * entries * (4 if choice.precision == "fp32" else 2) / (mesh.pp * mesh.cp)
    return sent / mesh.ep * (choice.procs_per_node // mesh.tp)


def plan_rings(choice: PlanChoice, profile: ModelProfile, *, line: Line) -> list[RingTraffic]:
    """What data-parallel ranks of an average stage exchange, as the forecast of its step counts it."""
    mesh = choice.mesh
    if profile.trace(choice.precision) is not None:
        return _traced_rings(choice, profile, line)
    found = exchanges(
        ModelLayout(mesh=mesh, wrapping=wrapping_of(choice.strategy, mesh)), profile.parameters / (mesh.pp * mesh.tp),
        blocks=(profile.blocks or 0) / mesh.pp, sync=choice.memory.gradient_sync, precision=choice.precision,
        optimizer=OptimizerModel(matrix_work=profile.matrix_work), averaging=averaging_of(line, profile),
        micro_batches=max(1, line.train.global_batch // (mesh.data_parallel * choice.micro_batch)),
    )  # fmt: skip
    return [
        RingTraffic(wire_bytes=sent, ranks=ranks, rank_stride=stride, steps=steps)
        for sent, ranks, stride, steps in found
    ]


def _traced_rings(choice: PlanChoice, profile: ModelProfile, line: Line) -> list[RingTraffic]:
    shape = Shape(choice.strategy, choice.mesh)
    options = ExecutionOptions(micro_batch=choice.micro_batch, precision=choice.precision, memory=choice.memory)
    rings: dict[tuple[int, int], list[Collective]] = {}
    for each in data_messages(profile, shape, pass_load(line, shape, options)):
        rings.setdefault((each.ranks, each.rank_stride), []).append(each)
    return [
        RingTraffic(
            wire_bytes=sum(each.wire_bytes for each in found), ranks=ranks, rank_stride=stride,
            steps=sum(each.steps for each in found),
        )
        for (ranks, stride), found in rings.items()
    ]  # fmt: skip


def _handed_bytes(profile: ModelProfile, precision: Precision) -> float | None:
    """Of one sample, from a block to the next."""
    trace, model = profile.trace(precision), profile.transformer
    if trace is not None:
        return next((unit.boundary_bytes for unit in reversed(trace.units) if unit.name), None)
    return None if model is None else model.sequence * model.width * (4 if precision == "fp32" else 2)


def plan_certificate(
    fabric: Fabric,
    choice: PlanChoice,
    profile: ModelProfile,
    *,
    line: Line,
    write_seconds: float | None = None,
    overlap: float = 0.0,
    links: str = "assumed",
    gpu: GpuTable | None = None,
) -> Certificate | None:
    """Of `choice` on the fewest groups that hold it; None: the fabric lacks servers, a server has two stages, or what
    goes over edges is not known.

    Args:
        fabric: As its administrator states it.
        choice: Of the plan.
        profile: Of the model that it trains.
        line: That asked for it.
        write_seconds: For which one checkpoint stops the training; None: not known.
        overlap: Share of computing that hides what data-parallel ranks exchange.
        links: How the speeds of the fabric are known.
        gpu: Of the site, whose latencies count where the fabric states none.
    """
    mesh, servers = choice.mesh, choice.num_nodes
    if servers < 2 or servers % mesh.pp or len(fabric.servers) < servers:
        return None
    replicas = servers // mesh.pp
    edges = plan_edges(choice, profile, line=line)
    if edges is None:
        return None
    forecast = choice.forecast
    compute = next((term.seconds for term in forecast.terms if term.part == "compute"), None)
    traffic = PlanTraffic(
        replicas=replicas, stages=mesh.pp, gpus=mesh.world_size, ranks_per_server=choice.procs_per_node,
        rings=tuple(plan_rings(choice, profile, line=line)), stage_edge_bytes=edges.stage,
        expert_edge_bytes=edges.expert, expert_servers=edges.expert_servers,
        compute_seconds=compute, overlap=overlap, write_seconds=write_seconds,
        inside_latency=(gpu.link_latency_seconds or 0.0) if gpu else 0.0,
        across_latency=(gpu.network_latency_seconds or 0.0) if gpu else 0.0,
        hours=None if forecast.wall_seconds is None else forecast.wall_seconds / 3600,
    )  # fmt: skip
    chosen = of_fewest_groups(fabric, servers)
    return certify(
        fabric, node_order(fabric, chosen, replicas=replicas, stages=mesh.pp, edges=edges), traffic, links=links
    )
