"""Node-rank order of servers: of those that somebody else chose, as a plan wants them, and of those of a pipeline.

Few borders lie between groups, and stages stand where they send. It runs on a server when a job starts, with the
standard library alone. Pure.
"""

from collections.abc import Sequence

from gangline.fabric.placement.mapping import EdgeBytes
from gangline.fabric.placement.selection import FreeGroup, select_servers
from gangline.fabric.placement.tiles import map_cells
from gangline.fabric.topology.inventory import Group
from gangline.spec.gang.podset import PipelineTraffic, PlacedServer


def order_servers(
    servers: Sequence[str], groups: Sequence[Group], *, tile: int = 1, pipeline: PipelineTraffic | None = None
) -> tuple[PlacedServer, ...]:
    """All `servers` in node-rank order; those that no group names come last, in the order given.

    Args:
        servers: As they were chosen, each once.
        groups: Of the stated network; servers of a group hang on the same leaf switches.
        tile: Consecutive servers that should share a group; a choice that allows no such order is ordered without.
        pipeline: What its stages and replicas send; None: a ring goes over all servers.
    """
    wanted = set(servers)
    free = [
        FreeGroup(name=each.name, block=each.block, servers={name: 1 for name in each.servers if name in wanted})
        for each in groups
    ]
    known = {name for each in free for name in each.servers}
    chosen = select_servers(free, len(known), tile=tile) if known else ()
    tiled = len(chosen) == len(known)
    if not tiled:
        chosen = select_servers(free, len(known))
    if pipeline is not None and len(known) == len(servers):
        chosen = pipeline_order(chosen, pipeline, tile=tile if tiled else 1)
    return (*chosen, *(PlacedServer(name=name) for name in servers if name not in known))


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
