"""Certificate of a plan by formula on a stated fabric: where its stages and replicas would stand, and what crosses."""

from gangline.fabric.certificate import Certificate, PlanTraffic, certify
from gangline.fabric.inventory import Fabric
from gangline.fabric.mapping import EdgeBytes, data_edge_bytes, stage_edge_bytes
from gangline.fabric.tiles import node_order
from gangline.planner.selection.choice import PlanChoice
from gangline.planner.transformer.layout import ModelLayout
from gangline.planner.transformer.memory import GRADIENT_BYTES
from gangline.spec.strategies import wrapping_of
from gangline.spec.transformer import Transformer


def plan_certificate(
    fabric: Fabric, choice: PlanChoice, model: Transformer, *, global_batch: int, write_seconds: float | None = None
) -> Certificate | None:
    """Of `choice` on the fewest groups that hold it; None: the fabric lacks servers, or a server has two stages.

    Args:
        fabric: As its administrator states it.
        choice: By formula.
        model: That it trains.
        global_batch: Samples of a step.
        write_seconds: For which one checkpoint stops the training; None: not known.
    """
    mesh, servers = choice.mesh, choice.num_nodes
    if servers < 2 or servers % mesh.pp or len(fabric.servers) < servers:
        return None
    replicas = servers // mesh.pp
    size = reduced_bytes(choice, model.parameters / (mesh.pp * mesh.tp), global_batch)
    edges = EdgeBytes(
        data=data_edge_bytes(size, replicas),
        stage=stage_edge_bytes(
            sequences=global_batch // mesh.data_parallel, tokens=model.sequence, width=model.width,
            tensor_parallel=mesh.tp,
        ) if mesh.pp > 1 else 0.0,
    )  # fmt: skip
    forecast = choice.forecast
    compute = next((term.seconds for term in forecast.terms if term.part == "compute"), None)
    traffic = PlanTraffic(
        replicas=replicas, stages=mesh.pp, edges=edges, size_bytes=size, compute_seconds=compute,
        hours=None if forecast.wall_seconds is None else forecast.wall_seconds / 3600, write_seconds=write_seconds,
    )  # fmt: skip
    chosen = _of_fewest_groups(fabric)[:servers]
    return certify(fabric, node_order(fabric, chosen, replicas=replicas, stages=mesh.pp, edges=edges), traffic)


def reduced_bytes(choice: PlanChoice, parameters: float, global_batch: int) -> float:
    """What one rank all-reduces in a step, or would, were it to send as much as it does by gathering and scattering."""
    count = max(1, global_batch // (choice.mesh.data_parallel * choice.micro_batch))
    layout = ModelLayout(mesh=choice.mesh, wrapping=wrapping_of(choice.strategy, choice.mesh))
    reduced = GRADIENT_BYTES * parameters
    if layout.shards == 1:
        return reduced * (1.5 if layout.wrapping.shares_optimizer else 1)
    width = 4 if choice.precision == "fp32" else 2
    gathers = 2 * count if layout.wrapping.reshards else 1
    reductions = count if choice.memory.gradient_sync == "each" else 1
    return (gathers * width * parameters + reductions * reduced) / 2


def _of_fewest_groups(fabric: Fabric) -> list[str]:
    """All servers, those of the largest groups first."""
    groups = sorted(fabric.groups, key=lambda each: (-len(each.servers), each.name))
    return [server for group in groups for server in group.servers]
