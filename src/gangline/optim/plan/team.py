"""Teams: ranks that share one large Newton-Schulz update, where single owners cannot be balanced. Pure.

A team splits a matrix along its longer side; a Gram evaluation is a local product and one all-reduce of m x m, and the
iterations on m x m are the same on all members. The results are not those of one owner, bit by bit.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from gangline.optim.plan.owners import WorkItem, falling
from gangline.units import Flops

OVERHEAD = 1.15
"""Work of all members over that of one owner: assumed, not measured."""
WORTH = 1.1
"""Bound of single owners over the mean, above which teams form."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TeamMap:
    """Ranks of every item; the first of a team is its leader."""

    members: tuple[tuple[int, ...], ...]
    shares: tuple[float, ...]
    """Cost of each item for each of its members."""
    loads: tuple[float, ...]
    """Load of each rank, in the unit of the costs."""
    atomic_mean: float
    """Load of each rank, were the work of single owners spread evenly."""

    @property
    def bound(self) -> float:
        """No other choice of members has a smaller largest load."""
        return max(sum(self.loads) / len(self.loads), *self.shares)

    @property
    def ratio(self) -> float:
        """Largest load over that mean."""
        return max(self.loads) / self.atomic_mean if self.atomic_mean else 1.0


def team_size(cost: float, mean: float, ranks: int) -> int:
    """Smallest power of two that brings the share of `cost` to the mean; 1 for what is no larger."""
    size = 1
    while cost > mean and OVERHEAD * cost / size > mean and 2 * size <= ranks:
        size *= 2
    return size


def teams(items: Sequence[WorkItem], ranks: int) -> TeamMap:
    """LPT of shares: an item above the mean falls to a team, where `ranks * largest / sum` is above `WORTH`.

    Args:
        items: Costs of one kind.
        ranks: 1 or more.
    """
    costs = [item.cost.value for item in items]
    mean = sum(costs) / ranks
    is_worth = max(costs, default=0) > WORTH * mean
    sizes = [team_size(cost, mean, ranks) if is_worth else 1 for cost in costs]
    shares = [OVERHEAD * cost / size if size > 1 else cost for cost, size in zip(costs, sizes, strict=True)]
    work = [WorkItem(key=item.key, cost=Flops(share)) for item, share in zip(items, shares, strict=True)]
    heap = [(0.0, rank) for rank in range(ranks)]
    members: list[tuple[int, ...]] = [()] * len(items)
    for at in falling(work):
        taken = [heapq.heappop(heap) for _ in range(sizes[at])]
        members[at] = tuple(rank for _, rank in taken)
        for load, rank in taken:
            heapq.heappush(heap, (load + shares[at], rank))
    return TeamMap(
        members=tuple(members), shares=tuple(shares),
        loads=tuple(load for load, _ in sorted(heap, key=lambda each: each[1])), atomic_mean=mean,
    )  # fmt: skip
