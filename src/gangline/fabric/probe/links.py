"""Lossy paths: how many probes it takes, when a path is called lossy, and which part of the network is to blame. Pure.

A path is judged by Wald's sequential test of each loss rate of LOSS_RATES against that of a healthy link, restarted at
zero evidence (Page 1954), so that a loss that begins later is found as soon. What paths have in common is found by
crossing out the parts of clean paths.

Source:
    Wald, "Sequential Analysis" (1947), ch. 3; Page, "Continuous Inspection Schemes" (1954).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, log, log1p

HEALTHY_LOSS = 1e-6
"""Share of probes that a healthy path loses."""
FALSE_ALARM = 1e-9
"""Probability, at each probe, that a healthy path is called lossy."""
MISS = 1e-3
"""Probability that a lossy path is called clean."""
LOSS_RATES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 3e-4, 1e-4)
"""Loss rates that are tested for; those between are found a little later."""
PROBE_BYTES = 128
PROBES_PER_SECOND = 10.0


def probes_to_cover(uplinks: int) -> float:
    """Mean number of probes with random ports until each of `uplinks` hashed links has carried one: n·H_n."""
    return uplinks * sum(1 / each for each in range(1, uplinks + 1))


def probes_to_cover_surely(uplinks: int) -> int:
    """Probes that cover all links with a probability of 99.9 %, at least: n·(ln n + ln 1000)."""
    return round(uplinks * (log(uplinks) + log(1000)))


def probes_to_find(loss: float) -> int:
    """Mean probes until a path that loses the share `loss` is called lossy, if that share is the one tested for.

    Source:
        Wald (1947), eq. 3:57, which takes no account of the last probe's excess over the bound.
    """
    if loss >= 1:
        return round(_UPPER / log(1 / HEALTHY_LOSS))
    gain = loss * log(loss / HEALTHY_LOSS) + (1 - loss) * (log1p(-loss) - log1p(-HEALTHY_LOSS))
    return round(((1 - MISS) * _UPPER + MISS * _LOWER) / gain)


def probe_bits_per_second() -> float:
    """What probing adds to a network interface: probes and their replies."""
    return 2 * PROBES_PER_SECOND * PROBE_BYTES * 8


_UPPER = log((1 - MISS) / FALSE_ALARM)
_LOWER = log(MISS / (1 - FALSE_ALARM))
_LOST = [log(each / HEALTHY_LOSS) for each in LOSS_RATES]
"""Evidence of a lost probe, by loss rate."""
_ARRIVED = [log1p(-each) - log1p(-HEALTHY_LOSS) if each < 1 else -inf for each in LOSS_RATES]
"""Evidence of a probe that arrived: negative."""


@dataclass(slots=True)
class LossTest:
    """The probes of one path, one after another."""

    sent: int = 0
    lost: int = 0
    is_lossy: bool = False
    """Stays so: a person or a new test clears it."""
    arrived_in_a_row: int = 0
    _evidence: list[float] = field(default_factory=lambda: [0.0] * len(LOSS_RATES))
    _since: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)] * len(LOSS_RATES))
    """Sent and lost when the evidence of a rate was last zero."""
    loss: float = 0.0
    """Share that was lost since the loss began; known once the path is lossy."""

    def add_lost(self) -> bool:
        """A probe was lost; True if the path is lossy."""
        self.sent, self.lost, self.arrived_in_a_row = self.sent + 1, self.lost + 1, 0
        for place, gain in enumerate(_LOST):
            if self._evidence[place] == 0:
                self._since[place] = self.sent - 1, self.lost - 1
            self._evidence[place] += gain
        best = max(range(len(LOSS_RATES)), key=lambda place: self._evidence[place])
        if self._evidence[best] >= _UPPER:
            sent, lost = self._since[best]
            self.is_lossy, self.loss = True, (self.lost - lost) / (self.sent - sent)
        return self.is_lossy

    def add_arrived(self, count: int = 1) -> None:
        """`count` probes arrived, one after another."""
        self.sent, self.arrived_in_a_row = self.sent + count, self.arrived_in_a_row + count
        for place, gain in enumerate(_ARRIVED):
            self._evidence[place] = max(0.0, self._evidence[place] + gain * count)


def loss_ruled_out(arrived_in_a_row: int) -> float:
    """Least share of loss that so many arrivals in a row rule out; wrong for a share MISS of paths that lose it."""
    return 1 - MISS ** (1 / arrived_in_a_row) if arrived_in_a_row else 1.0


def excludes(arrived_in_a_row: int, loss: float) -> bool:
    """Whether so many arrivals in a row rule out that a path loses the share `loss`."""
    return arrived_in_a_row > 0 and loss >= loss_ruled_out(arrived_in_a_row)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbedPath:
    """A path that was probed, with every part of the network that it certainly crosses."""

    source: str
    target: str
    parts: tuple[str, ...]
    """Names of hosts, links and leaves, such as `host a1`, `link a1/0`, `leaf g1/0`."""


def parts_of_path(source: str, target: str, *, groups: Mapping[str, str], rail: int | None = None) -> tuple[str, ...]:
    """Parts that a path between two servers certainly crosses: hosts, their links, leaves, the way between two groups.

    Args:
        source: Sending server.
        target: Receiving server.
        groups: Group by server; servers without one are taken to be of one group.
        rail: Of both network interfaces; None if the servers are known by one address each.
    """
    suffix = "" if rail is None else f"/{rail}"
    start, end = groups.get(source, ""), groups.get(target, "")
    leaves = {f"leaf {start}{suffix}", f"leaf {end}{suffix}"}
    between = [] if start == end else [f"uplinks {start}{suffix}", f"uplinks {end}{suffix}"]
    between += [] if start == end else [f"way {' to '.join(sorted((start, end)))}{suffix}"]
    return (
        f"host {source}", f"host {target}", f"link {source}{suffix}", f"link {target}{suffix}",
        *sorted(leaves), *between,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Suspect:
    """Parts of the network, any one of which explains the failed paths."""

    parts: tuple[str, ...]
    """More than one where the probes cannot tell them apart."""
    paths: tuple[ProbedPath, ...]
    """Failed paths that cross them."""
    is_partial: bool = False
    """Clean paths cross them, too: one of several links between groups, which only some traffic takes."""


def cleared_parts(paths: Iterable[tuple[ProbedPath, int]], *, loss: float) -> frozenset[str]:
    """Parts that lose less than `loss`: probes that arrived in a row over all given paths rule it out.

    Args:
        paths: Paths that are not lossy, each with its number of probes that arrived since the last loss.
        loss: Share that the lossy paths lose.
    """
    arrived: dict[str, int] = {}
    for path, count in paths:
        for part in path.parts:
            arrived[part] = arrived.get(part, 0) + count
    return frozenset(part for part, count in arrived.items() if excludes(count, loss))


def localise(failed: Sequence[ProbedPath], cleared: Collection[str]) -> tuple[Suspect, ...]:
    """The fewest parts that explain the failed paths and are not cleared.

    Paths inside one group are explained first: they tell a host or its link from what lies above. What joins groups is
    many links, of which each path takes some: that other paths cross it unharmed clears it less than it clears a host,
    so it still explains several paths that nothing else does. A failed path with no such part is a suspect by itself,
    with all its parts.
    """
    remaining = list(failed)
    suspects: list[Suspect] = []
    while remaining:
        of_part: dict[str, list[ProbedPath]] = {}
        for path in remaining:
            for part in path.parts:
                if part not in cleared or part.startswith(_SPREAD):
                    of_part.setdefault(part, []).append(path)
        of_part = {part: paths for part, paths in of_part.items() if part not in cleared or len(paths) > 1}
        if not of_part:
            return (*suspects, *(Suspect(parts=path.parts, paths=(path,)) for path in remaining))
        likeliest = max(of_part, key=lambda part: (*_explained(of_part[part]), part not in cleared))
        best = of_part[likeliest]
        equal = [part for part, paths in of_part.items() if paths == best]
        certain = tuple(part for part in equal if part not in cleared)
        suspects.append(Suspect(parts=certain or tuple(equal), paths=tuple(best), is_partial=not certain))
        remaining = [path for path in remaining if path not in best]
    return tuple(suspects)


_SPREAD = ("uplinks ", "way ")
"""Parts that are several links."""


def _explained(paths: Sequence[ProbedPath]) -> tuple[int, int]:
    """Paths inside one group, and all."""
    return sum(not any(part.startswith("way ") for part in path.parts) for path in paths), len(paths)
