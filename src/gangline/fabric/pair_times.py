"""Times between all pairs of servers: a slow row is a sender, a slow column a receiver, a slow cell a path. Pure.

Times are compared as logarithms, because a slow part multiplies them. Pairs inside a group and pairs across groups are
compared among their own kind.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import NormalDist, median, median_low
from typing import Literal

from gangline.fabric.significance import mad_sigma

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
    """To the healthy pairs of the same kind."""


def find_slow_pairs(seconds: Mapping[Pair, float], *, groups: Mapping[str, str]) -> tuple[SlowPairs, ...]:
    """What is slow between servers, leaves before servers before single paths; nothing of fewer than three servers.

    Args:
        seconds: By sender and receiver, of as many bytes or probes each; pairs may be missing.
        groups: Group by server; servers without one are taken to be of one group.
    """
    servers = sorted({name for pair in seconds for name in pair})
    if len(servers) < 3:
        return ()
    excess = _excess(seconds, groups)
    least = _least(excess, servers)
    rows = _slow_lines(excess, servers, 0, least)
    rest = {pair: each for pair, each in excess.items() if pair[0] not in rows}
    columns = _slow_lines(rest, servers, 1, least)
    cells = {pair: each for pair, each in rest.items() if pair[1] not in columns and each >= least}
    leaves = _slow_leaves(rows, columns, servers, groups)
    in_leaves = {name for name in servers if groups.get(name, "") in leaves}
    return (
        *(SlowPairs(kind="slow_leaf", names=(name,), ratio=exp(each)) for name, each in leaves.items()),
        *(SlowPairs(kind="slow_sender", names=(n,), ratio=exp(e)) for n, e in rows.items() if n not in in_leaves),
        *(SlowPairs(kind="slow_receiver", names=(n,), ratio=exp(e)) for n, e in columns.items() if n not in in_leaves),
        *(SlowPairs(kind="slow_path", names=pair, ratio=exp(each)) for pair, each in sorted(cells.items())),
    )


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


def _least(excess: Mapping[Pair, float], servers: Sequence[str]) -> float:
    """Excess from which a pair is slow: scaled to the number of pairs, and at least that of SLOWER_PAIR.

    The noise is what is left without the excess of servers that are slow with most of their peers.
    """
    rows, columns = (_slow_lines(excess, servers, side, log(SLOWER_PAIR)) for side in (0, 1))
    left = [each - max(rows.get(pair[0], 0.0), columns.get(pair[1], 0.0)) for pair, each in excess.items()]
    critical = _QUARTILE - NormalDist().inv_cdf(FALSE_ALARM_OF_TABLE / len(excess))
    return max(log(SLOWER_PAIR), critical * mad_sigma(left))


def _lines(excess: Mapping[Pair, float], servers: Sequence[str], side: int) -> dict[str, float]:
    """Median excess of each server with its peers, on one side of the pair; the lower one of two."""
    lines = {name: [each for pair, each in excess.items() if pair[side] == name] for name in servers}
    return {name: median_low(line) for name, line in lines.items() if len(line) > 1}


def _slow_lines(excess: Mapping[Pair, float], servers: Sequence[str], side: int, least: float) -> dict[str, float]:
    """The servers that are slow with at least most of their peers, on one side of the pair."""
    return {name: each for name, each in _lines(excess, servers, side).items() if each >= least}


def _slow_leaves(
    rows: Mapping[str, float], columns: Mapping[str, float], servers: Sequence[str], groups: Mapping[str, str]
) -> dict[str, float]:
    """Groups of several servers that are all slow: what they share is slow, not each of them."""
    found: dict[str, float] = {}
    for group in sorted({groups[name] for name in servers if name in groups}):
        members = [name for name in servers if groups.get(name) == group]
        slow = [rows.get(name, columns.get(name, 0.0)) for name in members if name in rows or name in columns]
        if 1 < len(members) == len(slow):
            found[group] = median(slow)
    return found
