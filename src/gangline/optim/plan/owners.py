"""Which rank owns which matrix: largest first, improved by moves and exchanges, and the bound of the best. Pure."""

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, combinations
from math import gcd

from gangline.errors import ConfigError
from gangline.units import Bytes, Flops, Seconds, format_bytes

SMALLEST_GAIN = 1e-12
"""Share of a load below which a gain is rounding."""
GOOD_ENOUGH = 1e-4
"""Share of the bound within which a largest load is not searched on; where all costs differ that would take long."""


class NoRoomError(ConfigError):
    """An item fits on no rank within a limit, in the order in which items are placed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkItem:
    """One update to place on a rank."""

    key: tuple[str, str]
    """`LogicalMatrix.key`: the last criterion of every order."""
    cost: Flops | Seconds
    owner_bytes: Bytes = Bytes(0)
    """State that its owner alone keeps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnerMap:
    """Owner of every item."""

    owners: tuple[int, ...]
    """Rank of each item, in the order of the items."""
    loads: tuple[float, ...]
    """Load of each rank, in the unit of the costs."""

    @property
    def ratio(self) -> float:
        """Largest load over the mean; 1 of no load."""
        return balance_ratio(self.loads)


def balance_ratio(loads: Sequence[float]) -> float:
    """Largest over mean; 1 of no load."""
    return max(loads) * len(loads) / sum(loads) if any(loads) else 1.0


def loads_of(owners: Sequence[int], costs: Sequence[float], ranks: int) -> list[float]:
    """Sum of costs of each rank."""
    loads: list[float] = [0] * ranks
    for owner, cost in zip(owners, costs, strict=True):
        loads[owner] += cost
    return loads


def largest_first(
    items: Sequence[WorkItem], ranks: int, *, memory: Bytes | None = None, start: Sequence[float] = ()
) -> list[int]:
    """Owner of each item by LPT: in falling order of cost, each to the least loaded rank that has room.

    Args:
        items: Costs of one kind.
        ranks: That they are placed on.
        memory: Owner bytes that a rank holds at most; None: no limit.
        start: Load of each rank beforehand; empty: none.

    Raises:
        NoRoomError: An item fits on no rank that has room left.
    """
    loads = [(start[rank] if start else 0, rank) for rank in range(ranks)]
    heapq.heapify(loads)
    held = [0.0] * ranks
    owners = [0] * len(items)
    for at in falling(items):
        item, full = items[at], []
        while loads and memory is not None and held[loads[0][1]] + item.owner_bytes.value > memory.value:
            full.append(heapq.heappop(loads))
        if not loads:
            need = format_bytes(item.owner_bytes.value)
            raise NoRoomError(f"{' '.join(item.key).strip()} needs {need} at its owner, and no rank has that room")
        load, rank = heapq.heappop(loads)
        owners[at] = rank
        held[rank] += item.owner_bytes.value
        for each in (*full, (load + item.cost.value, rank)):
            heapq.heappush(loads, each)
    return owners


def falling(items: Sequence[WorkItem]) -> list[int]:
    """Places of items in falling order of cost, then by key."""
    return sorted(range(len(items)), key=lambda at: (-items[at].cost.value, items[at].key))


def owner_map(items: Sequence[WorkItem], ranks: int, *, memory: Bytes | None = None) -> OwnerMap:
    """Largest first (LPT), then exchanges off the fullest rank until none helps or the bound is met.

    Args:
        items: Costs of one kind, keys distinct.
        ranks: 1 or more.
        memory: Owner bytes that a rank holds at most; None: no limit.

    Raises:
        ConfigError: No map was found within `memory`, or there is no rank.
        TypeError: Costs of two kinds.
    """
    if ranks < 1:
        raise ConfigError(f"owners need 1 rank or more, found {ranks}")
    if items:
        max(item.cost for item in items)  # refuses to compare two kinds
    costs = [item.cost.value for item in items]
    search = _Search(items, _first_map(items, ranks, memory), ranks, memory)
    search.run(least_makespan(costs, ranks))
    return OwnerMap(owners=tuple(search.owners), loads=tuple(loads_of(search.owners, costs, ranks)))


def _first_map(items: Sequence[WorkItem], ranks: int, memory: Bytes | None) -> list[int]:
    """Map by LPT; where that fills ranks too soon: the map without a limit, or one balanced by bytes.

    These two do not depend on the limit: what one of them holds works, and so does all above it.
    """
    try:
        return largest_first(items, ranks, memory=memory)
    except NoRoomError as error:
        assert memory is not None, "without a limit all ranks have room"
        held = [item.owner_bytes.value for item in items]
        by_bytes = [WorkItem(key=item.key, cost=Flops(item.owner_bytes.value)) for item in items]
        needs = []
        for owners in (owner_map(items, ranks).owners, owner_map(by_bytes, ranks).owners):
            need = max(loads_of(owners, held, ranks))
            if need <= memory.value:
                return list(owners)
            needs.append(need)
        raise ConfigError(
            f"{error} below owner_memory_bytes = {memory.value:.0f}; use {min(needs):.0f} or more, or 0 for no limit"
        ) from error


_Kind = tuple[float, float]
"""Cost and owner bytes: items of one kind may stand in for each other."""
_Subset = tuple[float, float, tuple[_Kind, ...]]
"""Cost, owner bytes and kinds of up to two items of a rank."""


class _Search:
    """Moves and exchanges of up to two items against up to two, off the fullest rank."""

    def __init__(self, items: Sequence[WorkItem], owners: list[int], ranks: int, memory: Bytes | None) -> None:
        self.owners = owners
        self._memory = float("inf") if memory is None else memory.value
        self._kinds: list[_Kind] = [(item.cost.value, item.owner_bytes.value) for item in items]
        self._items: list[dict[_Kind, list[int]]] = [{} for _ in range(ranks)]
        self._loads = loads_of(owners, [cost for cost, _ in self._kinds], ranks)
        self._held = loads_of(owners, [held for _, held in self._kinds], ranks)
        self._subsets: dict[int, list[_Subset]] = {}
        for at in falling(items):
            self._items[owners[at]].setdefault(self._kinds[at], []).append(at)

    def run(self, bound: float) -> None:
        """Improve until the fullest rank cannot be relieved, or holds hardly more than `bound`."""
        while True:
            full = max(range(len(self._loads)), key=lambda rank: (self._loads[rank], -rank))
            found = self._best(full) if self._loads[full] > bound * (1 + GOOD_ENOUGH) else None
            if found is None:
                return
            other, given, taken = found
            self._move(full, other, given)
            self._move(other, full, taken)

    def _best(self, full: int) -> tuple[int, tuple[_Kind, ...], tuple[_Kind, ...]] | None:
        """The exchange that leaves the smallest larger load of the two ranks."""
        load = self._loads[full]
        best, found = load * (1 - SMALLEST_GAIN), None
        seen = set()
        for other in sorted(range(len(self._loads)), key=lambda rank: (self._loads[rank], rank)):
            gap = load - self._loads[other]
            if load - gap / 2 >= best:
                break  # others are fuller yet
            signature = frozenset((kind, len(items)) for kind, items in self._items[other].items() if items)
            if other == full or signature in seen:
                continue
            seen.add(signature)
            for larger, given, taken in self._exchanges(full, other, gap):
                if larger < best:
                    best, found = larger, (other, given, taken)
        return found

    def _exchanges(
        self, full: int, other: int, gap: float
    ) -> Iterator[tuple[float, tuple[_Kind, ...], tuple[_Kind, ...]]]:
        """The best partner in `other` of each subset of `full`, with the larger load that is left."""
        there = self._subsets_of(other)
        costs = [cost for cost, _, _ in there]
        for cost, held, given in self._subsets_of(full):
            if not given:
                continue
            middle = bisect_left(costs, cost - gap / 2)
            for way in (range(middle, len(there)), range(middle - 1, -1, -1)):
                for at in way:
                    delta = cost - there[at][0]
                    if not 0 < delta < gap:
                        break
                    more = held - there[at][1]
                    if self._held[other] + more <= self._memory and self._held[full] - more <= self._memory:
                        yield max(self._loads[full] - delta, self._loads[other] + delta), given, there[at][2]
                        break

    def _subsets_of(self, rank: int) -> list[_Subset]:
        """Subsets of none, one or two items, each set of kinds once, by rising cost."""
        if rank not in self._subsets:
            kinds = sorted(kind for kind, items in self._items[rank].items() if items)
            twice = ((kind, kind) for kind in kinds if len(self._items[rank][kind]) > 1)
            sets = chain([()], ((kind,) for kind in kinds), combinations(kinds, 2), twice)
            self._subsets[rank] = sorted((sum(c for c, _ in each), sum(b for _, b in each), each) for each in sets)
        return self._subsets[rank]

    def _move(self, source: int, target: int, kinds: tuple[_Kind, ...]) -> None:
        for kind in kinds:
            at = self._items[source][kind].pop()
            self._items[target].setdefault(kind, []).append(at)
            self.owners[at] = target
            for sums, amount in ((self._loads, kind[0]), (self._held, kind[1])):
                sums[source] -= amount
                sums[target] += amount
        self._subsets.pop(source, None)
        self._subsets.pop(target, None)


MOST_BITS = 1 << 24
"""Bits of a set of reachable sums; where costs have no common measure, the bound does without it."""


def least_makespan(costs: Sequence[float], ranks: int) -> float:
    """No assignment of `costs` to `ranks` has a smaller largest load.

    The largest of mean, largest cost and pigeonhole sums; of whole-number costs the smallest sum of some of them that
    is as large.
    """
    sums = [0, *accumulate(sorted(costs, reverse=True))]
    # some rank has k + 1 of the k R + 1 largest items, at least the k + 1 smallest of them
    pigeonhole = max((sums[last + 1] - sums[last - last // ranks] for last in range(0, len(costs), ranks)), default=0)
    floor = max(max(costs, default=0), pigeonhole)
    if not any(costs) or not all(isinstance(cost, int) for cost in costs):
        return max(floor, sum(costs) / ranks)
    whole = [int(cost) for cost in costs]
    return _smallest_sum(whole, max(int(floor), -(-sum(whole) // ranks)))


def _smallest_sum(costs: list[int], least: int) -> int:
    """Smallest sum of some of `costs` that is `least` or more."""
    unit = gcd(*costs)
    floor = -(-least // unit)
    size = floor + max(costs) // unit
    if size > MOST_BITS:
        return least
    mask = (1 << (size + 1)) - 1
    reachable = 1
    for value, count in Counter(costs).items():
        for taken in _doublings(count):
            reachable |= (reachable << (value // unit * taken)) & mask
    above = reachable >> floor
    return (floor + (above & -above).bit_length() - 1) * unit if above else least


def _doublings(count: int) -> list[int]:
    """Numbers whose sums of some are all of 0 to `count`."""
    powers = [1 << power for power in range((count + 1).bit_length() - 1)]
    rest = count - sum(powers)
    return [*powers, rest] if rest else powers
