"""Whether the ranks of a gang stand where they were placed, and how often their real order crosses groups. Pure."""

from collections.abc import Sequence

from gangline.spec.gang.podset import PlacedServer
from gangline.spec.record import MovedNode, RankOrder

_MOST_MOVED = 20


def verify(placed: Sequence[PlacedServer], observed: Sequence[str]) -> RankOrder:
    """Compare the servers that a gang was given with those that its nodes run on, both in node-rank order.

    Args:
        placed: As the placer or Kueue assigned them; group and block empty where they are not known.
        observed: Names of the servers found, one a node.
    """
    known = {server.name: server for server in placed}
    found = [known.get(name, PlacedServer(name=name)) for name in observed]
    moved = [
        MovedNode(node_rank=rank, placed=server.name, found=name)
        for rank, (server, name) in enumerate(zip(placed, observed, strict=False))
        if server.name != name
    ]
    are_known = bool(found) and all(server.group for server in found)
    return RankOrder(
        num_groups=len(set(map(_group, found))) if are_known else None,
        crossings=ring_crossings(found) if are_known else None,
        num_moved=len(moved) + abs(len(placed) - len(observed)),
        moved=tuple(moved[:_MOST_MOVED]),
    )


def ring_crossings(servers: Sequence[PlacedServer]) -> int:
    """Edges of a ring over the servers, in this order, that lead to another group; least: one a group, 0 within one."""
    following = [*servers[1:], *servers[:1]]
    return sum(_group(one) != _group(other) for one, other in zip(servers, following, strict=True))


def _group(server: PlacedServer) -> tuple[str, str]:
    return server.block, server.group
