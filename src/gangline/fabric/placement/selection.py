"""Servers for one gang: fewest blocks, then fewest groups, then the fewest places left free in them. Pure.

Only the numbers of free places by group decide, so the search is exact and cheap. A place is room for one pod of the
gang. Groups are contiguous in node-rank order, and so are the groups of a block: a ring over all ranks crosses between
groups once a group. The same inputs give the same answer: ties go by name.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from gangline.fabric.topology.inventory import natural_key
from gangline.spec.gang.podset import PlacedServer


@dataclass(frozen=True, kw_only=True, slots=True)
class FreeGroup:
    """Servers that share their leaf switches, with their free places."""

    name: str = ""
    block: str = ""
    servers: Mapping[str, int]
    """Free places by server, in order of position."""

    @property
    def places(self) -> int:
        """Free places of all its servers."""
        return sum(self.servers.values())


def select_servers(groups: Iterable[FreeGroup], num_pods: int, *, tile: int = 1) -> tuple[PlacedServer, ...]:
    """Servers of `num_pods` pods in node-rank order, a server once for each of its pods; empty: they do not fit.

    Numbers of blocks and of groups are the least possible. The number of places left free in these groups is the least
    of all choices in one block, and of all choices in the blocks that were taken where there are several.

    Args:
        groups: With free places.
        num_pods: A multiple of `tile`.
        tile: Consecutive pods that share a group.
    """
    ordered = sorted(groups, key=lambda group: (natural_key(group.block), natural_key(group.name)))
    tiles = [group.places // tile for group in ordered]
    chosen = choose_groups(tiles, [group.block for group in ordered], -(-num_pods // tile))
    servers: list[PlacedServer] = []
    for position in chosen:
        number = min(tiles[position] * tile, num_pods - len(servers))
        servers += _fill(ordered[position], number)
    return tuple(servers)


def select_replacement(free: Iterable[PlacedServer], lost: PlacedServer) -> PlacedServer | None:
    """Server for the pod that was on `lost`: the same one, else of its group, its block, or any; None: none is free."""

    def distance(server: PlacedServer) -> tuple[bool, bool, bool, tuple[object, ...]]:
        is_elsewhere = server.block != lost.block
        return (
            server.name != lost.name,
            is_elsewhere or server.group != lost.group,
            is_elsewhere,
            natural_key(server.name),
        )

    return min(free, key=distance, default=None)


def choose_groups(sizes: Sequence[int], blocks: Sequence[str], wanted: int) -> tuple[int, ...]:
    """Positions of the groups that hold `wanted` in the fewest blocks, then the fewest groups; empty: they hold less.

    Args:
        sizes: Free places (or tiles) of each group.
        blocks: Name of the block of each group.
        wanted: Places (or tiles).
    """
    by_block: dict[str, list[int]] = {}
    for position, size in enumerate(sizes):
        if size:
            by_block.setdefault(blocks[position], []).append(position)
    answers = {}
    for members in _block_sets(
        [sorted(each, key=lambda position: -sizes[position]) for each in by_block.values()], sizes, wanted
    ):
        values = [sizes[position] for position in members]
        answer = tuple(members[position] for position in fewest(values, wanted))
        answers[answer] = sum(sizes[position] for position in answer)
    return min(answers, key=lambda answer: (answers[answer], answer), default=())


def fewest(sizes: Sequence[int], wanted: int) -> tuple[int, ...]:
    """Positions of the fewest sizes with a sum of at least `wanted`, and of these the least sum; empty: all are less.

    The largest give the number. What a choice holds less than they do cannot exceed what they hold too much, which is
    less than one size: bit i of `reach[j]` says whether some j of the sizes seen hold i less than the j largest.
    """
    order = sorted(range(len(sizes)), key=lambda position: -sizes[position])
    largest = [sizes[position] for position in order]
    sums = list(accumulate(largest))
    count = bisect_left(sums, wanted) + 1
    if wanted < 1 or count > len(order):
        return ()
    surplus = sums[count - 1] - wanted
    if not surplus:
        return tuple(sorted(order[:count]))
    reach, mask, history = [1] + [0] * count, (1 << surplus + 1) - 1, []
    for seen, size in enumerate(largest):
        if largest[count - 1] - size > surplus:
            break
        history.append(reach.copy())
        for j in range(min(seen + 1, count), max(0, count + seen - len(order)), -1):
            if reach[j - 1] and (less := largest[j - 1] - size) <= surplus:
                reach[j] |= reach[j - 1] << less & mask
    return _traced(order, largest, history, count, reach[count].bit_length() - 1)


def _traced(
    order: Sequence[int], largest: Sequence[int], history: Sequence[Sequence[int]], count: int, less: int
) -> tuple[int, ...]:
    """Positions of the choice behind bit `less` of `reach[count]`; of equal sizes the first are taken."""
    chosen = []
    for seen in range(len(history) - 1, -1, -1):
        if count and not history[seen][count] >> less & 1:
            less -= largest[count - 1] - largest[seen]
            count -= 1
            chosen.append(order[seen])
    return tuple(sorted(chosen))


def _block_sets(blocks: Iterable[Sequence[int]], sizes: Sequence[int], wanted: int) -> list[list[int]]:
    """Sets of blocks, as the positions of their groups: as few blocks as hold `wanted`, that need the fewest groups.

    A block gives its largest groups: `best[b]` has, by number of groups, the most places in b of the blocks seen.

    Args:
        blocks: Positions of the groups of each block, by falling size.
        sizes: Of all groups.
        wanted: That a set holds at least.
    """
    members = sorted(blocks, key=lambda block: -sum(sizes[position] for position in block))
    held = [[0, *accumulate(sizes[position] for position in member)] for member in members]
    totals = list(accumulate((each[-1] for each in held), initial=0))
    number = bisect_left(totals, wanted)
    if not 0 < number <= len(members):
        return []
    some = sorted((sizes[position] for member in members[:number] for position in member), reverse=True)
    enough = bisect_left(list(accumulate(some)), wanted) + 1  # groups that the largest blocks need
    best: list[dict[int, tuple[int, tuple[int, ...]]]] = [{} for _ in range(number)]
    best[0][0] = (0, ())
    found: dict[int, dict[tuple[int, ...], None]] = {}
    largest = max(sizes)
    for i, most in enumerate(held):
        for b in range(min(i, number - 1), max(-1, number + i - len(held) - 1), -1):
            later = totals[i + number - b] - totals[i + 1]  # the most that the blocks after this one can add
            for groups, (places, path) in best[b].items():
                for j in range(min(len(most) - 1, enough - groups), 0, -1):
                    missing = wanted - places - most[j]
                    if missing > later:
                        break
                    if groups + j + missing / largest > enough:
                        continue
                    if b == number - 1:
                        found.setdefault(groups + j, {})[(*path, i)] = None
                    elif places + most[j] > best[b + 1].get(groups + j, (-1, ()))[0]:
                        best[b + 1][groups + j] = (places + most[j], (*path, i))
    unlike = {tuple(sorted(sizes[p] for i in path for p in members[i])): path for path in reversed(found[min(found)])}
    return [sorted(position for i in path for position in members[i]) for path in unlike.values()]


def _fill(group: FreeGroup, number: int) -> list[PlacedServer]:
    """`number` entries of the servers with most places, so that pods stay together, in order of position."""
    places, taken = group.servers, dict[str, int]()
    for name in sorted(places, key=places.__getitem__, reverse=True):
        if places[name] >= number:
            taken[name] = number
            break
        taken[name] = places[name]
        number -= places[name]
    servers: list[PlacedServer] = []
    for name in places:
        if name in taken:
            servers += [PlacedServer(name=name, group=group.name, block=group.block)] * taken[name]
    return servers
