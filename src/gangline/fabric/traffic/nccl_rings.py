"""Rings that NCCL prints at its start, compared with the order of servers that a plan gave. Pure.

Rank 0 of each communicator prints them with NCCL_DEBUG=INFO and INIT among NCCL_DEBUG_SUBSYS: a line a channel, the
ranks numbered within the communicator. NCCL ends a line that is too long for its buffer with three dots: what follows
is unknown, and so is whether such a ring follows the plan.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

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
    found: list[NcclRing] = []
    for line in lines:
        if len(found) == MOST_RINGS:
            break
        if match := _LINE.search(line):
            channel, text, dots = match.groups()
            ranks = tuple(map(int, text.split()))
            if dots:
                ranks = ranks[:-1]  # its last digits may be missing
            ring = NcclRing(channel=int(channel), ranks=ranks, is_cut=bool(dots))
            if _is_of(ring, num_ranks):
                found.append(ring)
    return tuple(found)


def _is_of(ring: NcclRing, num_ranks: int) -> bool:
    if ring.is_cut:
        return len(ring.ranks) < num_ranks and max(ring.ranks, default=0) < num_ranks
    return sorted(ring.ranks) == list(range(num_ranks))
