"""When which root or basis is refreshed: heavy refreshes of all owners in the same steps. Pure.

A refresh costs many times a step. Each owner spreads its refreshes over the steps between two of them; as every step
ends with the slowest owner, all run their heaviest step at the same time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.optim.plan.owners import WorkItem, largest_first, loads_of


@dataclass(frozen=True, kw_only=True, slots=True)
class RefreshPlan:
    """Phase of every item: it is refreshed in steps whose number leaves this rest."""

    phases: tuple[int, ...]
    mean: float
    """Of the slowest owner, over the steps of a period, in the unit of the costs."""
    peak: float
    """Of the slowest owner in the heaviest step."""
    first: float
    """Of the slowest owner in step 0, where all is refreshed."""


def stagger(
    items: Sequence[WorkItem], steps: Sequence[float], owners: Sequence[int], *, ranks: int, every: int
) -> RefreshPlan:
    """Each owner's refreshes in `every` phases by LPT, heaviest phase first.

    Args:
        items: Refreshes; costs of one kind.
        steps: Cost of each item in every step, of the same kind.
        owners: Rank of each item.
        ranks: All ranks.
        every: Steps of a period.
    """
    phases = [0] * len(items)
    for rank in range(ranks):
        mine = [at for at, owner in enumerate(owners) if owner == rank]
        work = [items[at] for at in mine]
        packed = largest_first(work, every)
        loads = loads_of(packed, [each.cost.value for each in work], every)
        order = sorted(range(every), key=lambda phase: (-loads[phase], phase))
        for at, phase in zip(mine, packed, strict=True):
            phases[at] = order.index(phase)
    return _described(phases, steps, [each.cost.value for each in items], owners, ranks=ranks, every=every)


def _described(
    phases: list[int],
    steps: Sequence[float],
    refreshes: Sequence[float],
    owners: Sequence[int],
    *,
    ranks: int,
    every: int,
) -> RefreshPlan:
    base = loads_of(owners, steps, ranks)
    slowest = []
    for phase in range(every):
        due = [cost if mine == phase else 0 for cost, mine in zip(refreshes, phases, strict=True)]
        slowest.append(max(map(sum, zip(base, loads_of(owners, due, ranks), strict=True))))
    first = max(map(sum, zip(base, loads_of(owners, refreshes, ranks), strict=True)))
    return RefreshPlan(phases=tuple(phases), mean=sum(slowest) / every, peak=max(slowest), first=first)
