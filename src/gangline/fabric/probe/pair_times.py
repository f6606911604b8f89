"""Times between all pairs of servers: a slow row is a sender, a slow column a receiver, a slow cell a path. Pure.

Times are compared as logarithms, because a slow part multiplies them. Pairs inside a group and pairs across groups are
compared among their own kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log
from statistics import NormalDist, median, median_low
from typing import Literal

from gangline.fabric.reliability.stragglers import mad_sigma

SLOWER_PAIR = 1.2
"""Ratio to its peers from which a pair, a sender or a receiver is called slow."""
FALSE_ALARM_OF_TABLE = 1e-4
"""Probability that a table of healthy pairs names anything."""
_QUARTILE = 0.6745
"""Distance of the lower quartile, which excesses are counted from, from the mean, in standard deviations."""
Pair = tuple[str, str]
"""Sender, receiver."""
PairKind = Literal["slow_sender", "slow_receiver", "slow_path", "slow_leaf"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SlowPairs:
    """What is slow in a table of pairs."""

    kind: PairKind
    names: tuple[str, ...]
    """The server; of a path sender and receiver; of a leaf its group."""
    ratio: float
    """Ratio to the healthy pairs of the same kind."""


def find_slow_pairs(seconds: Mapping[Pair, float], *, groups: Mapping[str, str]) -> tuple[SlowPairs, ...]:
    """What is slow between servers, leaves before servers before single paths; nothing of fewer than three servers.

    Args:
        seconds: By sender and receiver, of as many bytes or probes each; pairs may be missing.
        groups: Group by server; servers without one are taken to be of one group.
    """
    if len({name for pair in seconds for name in pair}) < 3:
        return ()
    lines, remaining = _slow_lines(seconds, groups)
    excess = _excess(remaining, groups)
    least = _least(excess) if excess else 0.0
    cells = {pair: each for pair, each in excess.items() if each >= least}
    leaves = _slow_leaves(lines, groups)
    return (
        *(SlowPairs(kind="slow_leaf", names=(name,), ratio=exp(leaf)) for name, leaf in leaves.items()),
        *(
            SlowPairs(kind=_KINDS[side], names=(name,), ratio=exp(line))
            for (side, name), line in lines.items()
            if groups.get(name) not in leaves
        ),
        *(SlowPairs(kind="slow_path", names=pair, ratio=exp(each)) for pair, each in sorted(cells.items())),
    )


_KINDS: tuple[PairKind, PairKind] = ("slow_sender", "slow_receiver")
Line = tuple[int, str]
"""A row (0) or a column (1) of the table: the side of the pair, and its server."""


def _slow_lines(
    seconds: Mapping[Pair, float], groups: Mapping[str, str]
) -> tuple[dict[Line, float], Mapping[Pair, float]]:
    """Servers that are slow with at least most of their peers on one side, the slowest first; the other pairs.

    One at a time, because a slow column makes every row look slow in a small table.
    """
    found: dict[Line, float] = {}
    while seconds:
        excess = _excess(seconds, groups)
        lines = _medians(excess)
        slowest = max(lines, key=lambda line: lines[line], default=None)
        if slowest is None or lines[slowest] < _least(excess):
            break
        found[slowest] = lines[slowest]
        seconds = {pair: each for pair, each in seconds.items() if pair[slowest[0]] != slowest[1]}
    return found, seconds


def _medians(excess: Mapping[Pair, float]) -> dict[Line, float]:
    """Median of each row and column that has two pairs or more; the lower one of two."""
    lines: dict[Line, list[float]] = {}
    for pair, each in excess.items():
        for side, name in enumerate(pair):
            lines.setdefault((side, name), []).append(each)
    return {line: median_low(values) for line, values in lines.items() if len(values) > 1}


def _excess(seconds: Mapping[Pair, float], groups: Mapping[str, str]) -> dict[Pair, float]:
    """Logarithm of each pair's time over the usual one of its kind: inside a group, or across groups.

    The usual one is the lower quartile: of three groups, two thirds of the pairs across cross a slow leaf.
    """
    by_kind: dict[bool, list[Pair]] = {}
    for source, target in seconds:
        by_kind.setdefault(groups.get(source, "") == groups.get(target, ""), []).append((source, target))
    found: dict[Pair, float] = {}
    for pairs in by_kind.values():
        usual = sorted(log(seconds[pair]) for pair in pairs)[len(pairs) // 4]
        found |= {pair: log(seconds[pair]) - usual for pair in pairs}
    return found


def _least(excess: Mapping[Pair, float]) -> float:
    """Excess from which a pair is slow: scaled to the number of pairs, and at least that of SLOWER_PAIR.

    The noise is what is left without the excess of servers that are slow with most of their peers.
    """
    lines = {line: each for line, each in _medians(excess).items() if each >= log(SLOWER_PAIR)}
    left = [each - max(lines.get(line, 0.0) for line in enumerate(pair)) for pair, each in excess.items()]
    critical = _QUARTILE - NormalDist().inv_cdf(FALSE_ALARM_OF_TABLE / len(excess))
    return max(log(SLOWER_PAIR), critical * mad_sigma(left))


def group_matrix(values: Mapping[Pair, float], *, groups: Mapping[str, str]) -> dict[Pair, float]:
    """Median of the values from each group to each, of servers whose groups are known."""
    cells: dict[Pair, list[float]] = {}
    for (source, target), value in values.items():
        if source in groups and target in groups:
            cells.setdefault((groups[source], groups[target]), []).append(value)
    return {pair: median(each) for pair, each in sorted(cells.items())}


def _slow_leaves(lines: Mapping[Line, float], groups: Mapping[str, str]) -> dict[str, float]:
    """Groups of several servers that are all slow: what they share is slow, not each of them."""
    found: dict[str, float] = {}
    for group in sorted(set(groups.values())):
        members = [name for name, of in groups.items() if of == group]
        slow = [max(lines.get((side, name), 0.0) for side in (0, 1)) for name in members]
        if len(members) > 1 and min(slow) > 0:
            found[group] = median(slow)
    return found
