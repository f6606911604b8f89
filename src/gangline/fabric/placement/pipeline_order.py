"""Node-rank order of the servers of a pipeline: which stages and replicas go to which group. Pure."""

from collections.abc import Sequence

from gangline.fabric.placement.mapping import EdgeBytes
from gangline.fabric.placement.tiles import map_cells
from gangline.spec.gang.podset import PipelineTraffic, PlacedServer


def pipeline_order(
    servers: Sequence[PlacedServer], traffic: PipelineTraffic, *, tile: int = 1
) -> tuple[PlacedServer, ...]:
    """The same `servers` in an order in which stages and replicas send the fewest bytes between groups.

    They stay as they are in one group, or where stages do not divide them.

    Args:
        servers: In node-rank order, those of a group consecutive, a server once for each of its pods.
        traffic: Of the plan.
        tile: Consecutive pods that share a group, and stay together.
    """
    tiles = [tuple(servers[start : start + tile]) for start in range(0, len(servers), tile)]
    replicas, left = divmod(len(tiles), traffic.stages)
    by_group: dict[tuple[str, str], list[tuple[PlacedServer, ...]]] = {}
    for each in tiles:
        by_group.setdefault((each[0].block, each[0].group), []).append(each)
    if left or traffic.stages == 1 or len(by_group) == 1:
        return tuple(servers)
    shares = {str(number): len(found) for number, found in enumerate(by_group.values())}
    experts = traffic.expert_nodes // tile if traffic.expert_nodes % tile == 0 else 1
    edges = EdgeBytes(
        data=traffic.data_edge_bytes, stage=traffic.stage_edge_bytes, expert=traffic.expert_edge_bytes,
        expert_servers=experts if replicas % experts == 0 else 1,
    )  # fmt: skip
    mapping = map_cells(shares, replicas=replicas, stages=traffic.stages, edges=edges)
    queues = dict(zip(shares, map(iter, by_group.values()), strict=True))
    return tuple(server for row in mapping.groups for group in row for server in next(queues[group]))
