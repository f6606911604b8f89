"""Order of servers on a ring, how often it leaves a group, and the rings that NCCL made of a plan's order. Pure.

Each crossing is a flow on an uplink: the table of a gang's ranks tells readers of switches' counters where each is, and
which flows to expect.

With NCCL_DEBUG=INFO and INIT among NCCL_DEBUG_SUBSYS, rank 0 of each communicator prints its rings: a line a channel,
the ranks numbered within the communicator. NCCL ends a line that is too long for its buffer with three dots: what
follows is unknown, and so is whether such a ring follows the plan.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from gangline.errors import ConfigError
from gangline.fabric.topology.inventory import Fabric

HEADER = "rank,node_rank,server,group,rail,uplink_flows"


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


def rank_table(servers: Sequence[str], group_of: Mapping[str, str], *, ranks_per_server: int) -> str:
    """CSV, a line for each rank.

    `rail` is the place of the rank on its server, whose NIC hangs on that leaf of the group; `uplink_flows` are edges
    of a ring over all servers that leave the group: so many flows go up from each of its leaves, and come down to it.

    Args:
        servers: In node-rank order.
        group_of: Group of each of them.
        ranks_per_server: One a NIC.
    """
    flows = crossing_flows(servers, group_of)
    rows = (
        f"{node * ranks_per_server + rail},{node},{server},{group_of[server]},{rail},{flows[group_of[server]]}"
        for node, server in enumerate(servers)
        for rail in range(ranks_per_server)
    )
    return "\n".join([HEADER, *rows]) + "\n"


_LINE = re.compile(r"NCCL INFO Channel (\d{1,4})/\d{1,4} :((?: +\d{1,9})+) *(\.\.\.)?\s*$")
"""Line of a channel; a connection, `Channel 00/0 : 0[0] -> 1[1] via ...`, has another form."""
MOST_RINGS = 4096
"""A gang has some dozens; a log may be anything."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NcclRing:
    """One ring of a communicator."""

    channel: int
    ranks: tuple[int, ...]
    """Ranks in the order of the ring, from rank 0 of the communicator."""
    is_cut: bool = False
    """NCCL left out the end of the line."""

    def node_order(self, *, ranks_per_node: int) -> tuple[int, ...]:
        """Node ranks that the ring visits in turn; a node twice if the ring leaves it and comes back."""
        visits = [node for node, _ in groupby(rank // ranks_per_node for rank in self.ranks)]
        is_split = not self.is_cut and len(visits) > 1 and visits[0] == visits[-1]
        return tuple(visits[:-1] if is_split else visits)  # a ring may begin in the middle of a node

    def follows_plan(self, *, ranks_per_node: int) -> bool | None:
        """Whether it visits the nodes once each, by node rank, in either direction; None: the line was cut."""
        if self.is_cut:
            return None
        order = self.node_order(ranks_per_node=ranks_per_node)
        forward = tuple(range(len(order)))
        return order in (forward, (*forward[:1], *forward[:0:-1]))


def read_rings(lines: Iterable[str], *, num_ranks: int) -> tuple[NcclRing, ...]:
    """Rings of communicators of so many ranks, in the order of the log; others, such as of tensor-parallel groups, are
    passed over.

    A cut line does not tell the size of its communicator: it is taken if it names no rank from `num_ranks` on. Reading
    ends after `MOST_RINGS`.
    """
    rings: list[NcclRing] = []
    for line in lines:
        if len(rings) == MOST_RINGS:
            break
        if match := _LINE.search(line):
            channel, text, dots = match.groups()
            ranks = tuple(map(int, text.split()))
            if dots:
                ranks = ranks[:-1]  # its last digits may be missing
            ring = NcclRing(channel=int(channel), ranks=ranks, is_cut=bool(dots))
            if _is_of(ring, num_ranks):
                rings.append(ring)
    return tuple(rings)


def _is_of(ring: NcclRing, num_ranks: int) -> bool:
    if ring.is_cut:
        return len(ring.ranks) < num_ranks and max(ring.ranks, default=0) < num_ranks
    return sorted(ring.ranks) == list(range(num_ranks))
