"""What a plan asks of the network, and its certificate: where its stages and replicas are on a fabric. Pure."""

from gangline.fabric.placement.certificate import Certificate, PlanTraffic, certify
from gangline.fabric.placement.mapping import EdgeBytes
from gangline.fabric.placement.tiles import planned_order
from gangline.fabric.topology.inventory import Fabric
from gangline.fabric.traffic.order_paths import RingTraffic
from gangline.planner.choice import PlanChoice
from gangline.planner.cost.traffic import edge_bytes, traced_rings
from gangline.planner.formula.memory import stages_of
from gangline.planner.formula.step_time import formula_rings
from gangline.planner.layouts.layout import Layout
from gangline.planner.settings import Setting, StepLoad, step_load
from gangline.spec.config.line import Line
from gangline.spec.config.site import GpuTable
from gangline.spec.gang.podset import PipelineTraffic
from gangline.spec.profile import ModelProfile


def pipeline_traffic(choice: PlanChoice, profile: ModelProfile, *, line: Line) -> PipelineTraffic | None:
    """Bytes by which a placer orders the servers of a pipeline; None: there is none over servers, or not known."""
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
    rings = plan_rings(choice, profile, line=line)
    return edge_bytes(rings, profile, choice.mesh, _load(choice, line), ranks_per_server=choice.procs_per_node)


def plan_rings(choice: PlanChoice, profile: ModelProfile, *, line: Line, fullest: bool = False) -> list[RingTraffic]:
    """What data-parallel ranks of an average stage exchange, or those of the `fullest`, as the forecast counts it."""
    layout, load, model = Layout(choice.strategy, choice.mesh), _load(choice, line), profile.transformer
    if profile.trace(choice.precision) is not None:
        return traced_rings(profile, layout, load)
    stages = stages_of(model, choice.mesh.pp, choice.pp_schedule) if model and fullest else None
    return formula_rings(profile, layout, load, stages=stages)


def _load(choice: PlanChoice, line: Line) -> StepLoad:
    setting = Setting(micro_batch=choice.micro_batch, precision=choice.precision, memory=choice.memory)
    return step_load(line, Layout(choice.strategy, choice.mesh), setting)


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
    """Certificate of `choice` on the fewest groups; None: the fabric lacks servers, a server has two stages, or what
    goes over edges is not known.

    One checkpoint stops the training for `write_seconds`; `overlap` is the share of computing that hides what
    data-parallel ranks exchange; latencies of `gpu` count where the fabric states none.
    """
    mesh, servers = choice.mesh, choice.num_nodes
    if servers < 2 or servers % mesh.pp or len(fabric.servers) < servers:
        return None
    edges = plan_edges(choice, profile, line=line)
    if edges is None:
        return None
    forecast = choice.forecast
    compute = next((term.seconds for term in forecast.terms if term.part == "compute"), None)
    traffic = PlanTraffic(
        replicas=servers // mesh.pp, stages=mesh.pp, gpus=mesh.world_size, ranks_per_server=choice.procs_per_node,
        rings=tuple(plan_rings(choice, profile, line=line)),
        slowest_rings=tuple(plan_rings(choice, profile, line=line, fullest=True)), stage_edge_bytes=edges.stage,
        expert_edge_bytes=edges.expert, expert_servers=edges.expert_servers,
        compute_seconds=compute, overlap=overlap, write_seconds=write_seconds,
        inside_latency=(gpu.link_latency_seconds or 0.0) if gpu else 0.0,
        across_latency=(gpu.network_latency_seconds or 0.0) if gpu else 0.0,
        hours=None if forecast.wall_seconds is None else forecast.wall_seconds / 3600,
    )  # fmt: skip
    return certify(fabric, planned_order(fabric, servers, stages=mesh.pp, edges=edges), traffic, links=links)
