"""Order of servers on a ring, and how often it leaves a group: each crossing is a flow on an uplink. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from gangline.errors import ConfigError
from gangline.fabric.topology.inventory import Fabric


def ring_order(fabric: Fabric, servers: Iterable[str]) -> tuple[str, ...]:
    """Servers with blocks contiguous, groups contiguous in them, and by position in those: the fewest crossings.

    Raises:
        ConfigError: A server is not in the fabric.
    """
    wanted = set(servers)
    if unknown := wanted - set(fabric.servers):
        raise ConfigError(f"wanted servers of the fabric, found {', '.join(sorted(unknown)[:8])}")
    blocks = {block: at for at, block in enumerate(dict.fromkeys(group.block for group in fabric.groups))}
    groups = sorted(fabric.groups, key=lambda group: blocks[group.block])
    return tuple(server for group in groups for server in group.servers if server in wanted)


def group_edges(order: Sequence[str], group_of: Mapping[str, str]) -> Counter[tuple[str, str]]:
    """Edges of the closed ring from group to group, those inside a group too; none of a single server."""
    groups = [group_of[server] for server in order]
    return Counter(pairwise([*groups, *groups[:1]])) if len(groups) > 1 else Counter()


def crossing_flows(order: Sequence[str], group_of: Mapping[str, str]) -> Counter[str]:
    """Edges of the closed ring that leave each group; as many enter it."""
    flows: Counter[str] = Counter()
    for (here, there), edges in group_edges(order, group_of).items():
        if here != there:
            flows[here] += edges
    return flows


def ring_crossings(order: Sequence[str], group_of: Mapping[str, str]) -> int:
    """Edges of the closed ring between two groups."""
    return crossing_flows(order, group_of).total()


def fewest_crossings(num_groups: int) -> int:
    """Fewest crossings of any ring through servers of so many groups."""
    return num_groups if num_groups > 1 else 0


def random_crossings(servers_by_group: Sequence[int]) -> float:
    """Expected of a ring in random order; for equal groups of m among N servers N (1 - (m-1)/(N-1))."""
    servers = sum(servers_by_group)
    if servers < 2:
        return 0.0
    return servers - sum(count * (count - 1) for count in servers_by_group) / (servers - 1)
