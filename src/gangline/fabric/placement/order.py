"""Node-rank order of servers: of those that somebody else chose, of those of a pipeline, and whether ranks run in it.

Few borders lie between groups, and stages stand where they send. It runs on a server when a job starts, with the
standard library alone. Pure.
"""

from collections.abc import Sequence
from itertools import chain

from gangline.fabric.placement.mapping import EdgeBytes, server_order
from gangline.fabric.placement.selection import FreeGroup, select_servers
from gangline.fabric.placement.tiles import map_cells
from gangline.fabric.topology.inventory import Group
from gangline.fabric.traffic.rings import group_edges, ring_crossings
from gangline.spec.gang.podset import PipelineTraffic, PlacedServer
from gangline.spec.measurements import GroupEdges, MovedNode, RankOrder, SplitTile


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
        FreeGroup(name=group.name, block=group.block, servers={name: 1 for name in group.servers if name in wanted})
        for group in groups
    ]
    known = {name for group in free for name in group.servers}
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
    for placed_servers in tiles:
        by_group.setdefault((placed_servers[0].block, placed_servers[0].group), []).append(placed_servers)
    if left or traffic.stages == 1 or len(by_group) == 1:
        return tuple(servers)
    shares = {str(number): len(found) for number, found in enumerate(by_group.values())}
    experts = traffic.expert_nodes // tile if traffic.expert_nodes % tile == 0 else 1
    edges = EdgeBytes(
        data=traffic.data_edge_bytes, stage=traffic.stage_edge_bytes, expert=traffic.expert_edge_bytes,
        expert_servers=experts if replicas % experts == 0 else 1,
    )  # fmt: skip
    cells = map_cells(shares, replicas=replicas, stages=traffic.stages, edges=edges)
    return tuple(chain(*server_order(cells, dict(zip(shares, by_group.values(), strict=True)))))


_MOST_NAMED = 20
_MOST_PAIRS = 64
"""Most pairs of groups: a record holds as many."""


def verify(placed: Sequence[PlacedServer], observed: Sequence[str], *, tile: int = 1) -> RankOrder:
    """Compare the servers that a gang was given with those that its nodes run on, both in node-rank order.

    Args:
        placed: As the placer or Kueue assigned them; group and block empty where they are not known.
        observed: Names of the servers found, one a node.
        tile: Consecutive nodes that the plan wants in one group.
    """
    group_of = {server.name: f"{server.block}/{server.group}" for server in placed if server.group}
    moved = [
        MovedNode(node_rank=rank, placed=server.name, found=name)
        for rank, (server, name) in enumerate(zip(placed, observed, strict=False))
        if server.name != name
    ]
    pairs: list[GroupEdges] = []
    split: list[SplitTile] = []
    are_known = bool(observed) and group_of.keys() >= set(observed)
    if are_known:
        counts = sorted(group_edges(observed, group_of).items())
        pairs = [GroupEdges(source=one, target=other, edges=count) for (one, other), count in counts]
        split = _split_tiles([group_of[name] for name in observed], tile)
    return RankOrder(
        num_groups=len({group_of[name] for name in observed}) if are_known else None,
        crossings=ring_crossings(observed, group_of) if are_known else None,
        edges=tuple(pairs) if len(pairs) <= _MOST_PAIRS else (),
        num_moved=len(moved) + abs(len(placed) - len(observed)),
        moved=tuple(moved[:_MOST_NAMED]),
        num_split=len(split) if are_known else None,
        split=tuple(split[:_MOST_NAMED]),
    )


def _split_tiles(groups: Sequence[str], tile: int) -> list[SplitTile]:
    tiles = [(start, groups[start : start + tile]) for start in range(0, len(groups), tile)]
    return [
        SplitTile(first=start, last=start + len(found) - 1, groups=tuple(dict.fromkeys(found)))
        for start, found in tiles
        if len(set(found)) > 1
    ]
