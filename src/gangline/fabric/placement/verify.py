"""Check that the ranks of a gang run where they were placed, and how often their real order crosses groups. Pure."""

from collections.abc import Sequence

from gangline.fabric.traffic.rings import group_edges, ring_crossings
from gangline.spec.gang.podset import PlacedServer
from gangline.spec.rank_order import GroupEdges, MovedNode, RankOrder, SplitTile

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
