"""Test of all servers in pairs before a run: slow pairs are paired again with fast servers; slow twice is the culprit.

Pure: what measures a pair comes as an argument.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gangline.errors import UsageError
from gangline.fabric.probe.pair_times import Pair

SLOW_ONCE = 1.5
"""Ratio of the usual speed to a pair's from which the pair is slow: one connection of a busy host varies by tens of
percent, and a broken link or interface costs half or more."""
Measure = Callable[[Sequence[Pair]], Mapping[Pair, float]]
"""Bytes per second of each of the disjoint pairs, measured at the same time; 0 of a pair that did not answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PreflightResult:
    """What a test of all servers found."""

    culprits: tuple[str, ...]
    """Slow with two partners, the second of which was fast with another."""
    unsure: tuple[str, ...]
    """Slow once, and no fast server was left to test them with."""
    bytes_per_second: Mapping[Pair, float]
    """Speeds of all pairs that were measured."""
    usual_bytes_per_second: float
    """Upper quartile of the pairs of the first round."""


def tournament(servers: Sequence[str]) -> list[list[Pair]]:
    """Rounds of disjoint pairs, in which each server meets each other once; one server rests if their number is odd.

    Source:
        The circle method (Kirkman 1847).
    """
    ring: list[str | None] = [*servers, *([None] if len(servers) % 2 else [])]
    rounds = []
    for _ in range(len(ring) - 1):
        pairs = zip(ring[: len(ring) // 2], reversed(ring[len(ring) // 2 :]), strict=True)
        rounds.append([(one, other) for one, other in pairs if one is not None and other is not None])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return rounds


def preflight(servers: Sequence[str], measure: Measure, *, rounds: int = 1) -> PreflightResult:
    """Measure `rounds` rounds of the tournament, then every slow server with a fast one.

    Raises:
        UsageError: There are fewer than four servers, or one twice: slow pairs could not be found.
    """
    if len(set(servers)) < 4 or len(set(servers)) != len(servers):
        raise UsageError(f"a test in pairs wants at least 4 different servers, found {', '.join(servers) or 'none'}")
    speeds: dict[Pair, float] = {}
    for pairs in tournament(servers)[: max(1, rounds)]:
        speeds |= measure(pairs)
    usual = sorted(speeds.values())[-(len(speeds) // 4 + 1)]
    fast = {name for pair, speed in speeds.items() if _is_fast(speed, usual) for name in pair}
    suspects = [name for name in servers if name not in fast]
    culprits, unsure = [], []
    while suspects:
        partners = [name for name in servers if name in fast][: len(suspects)]
        if not partners:
            unsure = suspects
            break
        now, suspects = suspects[: len(partners)], suspects[len(partners) :]
        found = measure(list(zip(now, partners, strict=True)))
        speeds |= found
        culprits += [pair[0] for pair, speed in found.items() if not _is_fast(speed, usual)]
    return PreflightResult(
        culprits=tuple(culprits), unsure=tuple(unsure), bytes_per_second=speeds, usual_bytes_per_second=usual
    )


def _is_fast(speed: float, usual: float) -> bool:
    return speed > 0 and speed * SLOW_ONCE >= usual
