"""When which root or basis is refreshed: heavy refreshes of all owners in the same steps. Pure.

A refresh costs many times a step. Each owner spreads its refreshes over the steps between two of them; as every step
ends with the slowest owner, all run their heaviest step at the same time.
"""

from collections.abc import Sequence

from gangline.optim.plan.owners import WorkItem, largest_first, loads_of


def stagger(items: Sequence[WorkItem], owners: Sequence[int], *, ranks: int, every: int) -> tuple[int, ...]:
    """Phase of every item, which is refreshed in steps whose number leaves this rest: each owner's by LPT, its heaviest
    phase first.

    Args:
        items: Refreshes; costs of one kind.
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
    return tuple(phases)
