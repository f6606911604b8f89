"""Order of servers that somebody else chose, as a plan wants it: few borders between groups, stages where they send.

It runs on a server when a job starts, with the standard library alone. Pure.
"""

from collections.abc import Sequence

from gangline.fabric.placement.pipeline_order import pipeline_order
from gangline.fabric.placement.selection import FreeGroup, select_servers
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
