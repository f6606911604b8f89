"""Servers of a stated network for a gang, in node-rank order; a gang has each of them whole. Pure."""

from collections.abc import Sequence

from gangline.errors import CapacityError, UsageError
from gangline.fabric.placement.pipeline_order import pipeline_order
from gangline.fabric.placement.selection import FreeGroup, select_servers
from gangline.fabric.topology.inventory import Fabric
from gangline.spec.gang.podset import PlacedServer, Placement


def choose_servers(
    fabric: Fabric, num_nodes: int, placement: Placement, *, among: Sequence[str] | None = None
) -> tuple[PlacedServer, ...]:
    """Fewest blocks, then fewest groups, as the placer chooses; pipelines are ordered by what they send.

    Args:
        fabric: Its groups name the servers.
        num_nodes: Servers wanted.
        placement: Tile of the gang, and traffic of its pipeline.
        among: Servers that are free; None: all of `fabric`.

    Raises:
        UsageError: `among` names a server that is in no group.
        CapacityError: The servers do not hold the gang.
    """
    free = set(fabric.servers if among is None else among)
    if unknown := sorted(free - set(fabric.servers)):
        raise UsageError(f"wanted servers of the groups of fabric.toml, found {', '.join(unknown[:5])} in none of them")
    groups = [
        FreeGroup(name=each.name, block=each.block, servers={name: 1 for name in each.servers if name in free})
        for each in fabric.groups
    ]
    servers = select_servers(groups, num_nodes, tile=placement.tile)
    if not servers:
        fits = sum(each.places // placement.tile * placement.tile for each in groups)
        tiles = f", each {placement.tile} consecutive ones in one group" if placement.tile > 1 else ""
        raise CapacityError(
            f"wanted {num_nodes} servers{tiles}, found {fits} among {len(free)}; name more of them, or plan for {fits}"
        )
    if placement.pipeline is None:
        return servers
    return pipeline_order(servers, placement.pipeline, tile=placement.tile)
