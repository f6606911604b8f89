"""Detection of slow ranks from windows of step times. Pure: every rank gets the same result.

All steps of a gang take equally long, so only a rank's own work, without its waiting, shows which is slow; the slow
rank waits least. Ranks that share a sample (tensor and context peers) wait for each other inside their passes, where it
looks like work: they are compared as one *cell*. Stages of a pipeline do different work: a cell is compared within its
stage.

A rank's own time over `w` steps is compared with its peers' by z = (x - median) / (1.4826 MAD). A gang of N ranks is
judged N·86,400 / (w·step) times a day, so the score that one false alarm in 100 days allows grows with N: a large gang
raises no more of them than a small one.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import pairwise
from math import ceil, exp, inf, sqrt
from statistics import NormalDist, median

from gangline.fabric.reliability.step_times import (
    PeerGroup,
    PeerGroups,
    Straggler,
    WindowRange,
    WindowTimes,
    peer_groups,
    ratios,
)

FALSE_ALARMS_PER_DAY = 0.01
MAD_TO_SIGMA = 1.4826
_MEDIAN_ERROR = 1.2533
"""Ratio of the standard errors of median and mean, for normal values."""
_JUMP_FREEDOM = 0.25
"""Degrees of freedom that one jump adds: a median of deviations uses 37 % of them, and consecutive jumps overlap."""
_CHANCE = 2.0
"""Standard errors by which one rank's jumps may exceed its peers' by chance."""
_FIRST_SIGMA, _FIRST_FREEDOM = 0.03, 6.0
"""Noise of a window that a gang is taken to have until it has shown its own, and its weight in degrees of freedom."""
LOOKBACKS = (6, 12, 30)
"""Windows that are considered: a large difference is found soon, what is close to the noise later."""
LASTS_SECONDS = 20.0
"""Windows that together last as long are enough, once six are known; else six are."""
WINDOW_SECONDS = 25.0
FEWEST_STEPS, MOST_STEPS = 5, 10
"""Steps of a window: as many as last WINDOW_SECONDS, within these."""
BEYOND = 1.25
"""Factor by which few windows must exceed what any peer has shown in one: not all noise is normal."""
MOSTLY = 0.8
"""Share of the windows in which a rank must be slow."""
SLOWER = 1.05
"""Ratio of own time to the others' from which a rank is reported as slow."""
SLOWER_OF_MANY = 1.02
"""The same where there are enough peers to know their usual spread: all of them wait."""
MANY = 16
"""Peers from which their usual spread is known."""
OVER = 1.02
"""Ratio below which, or halfway to SLOWER_OF_MANY among many, a rank is no longer slow."""
LEAST_SECONDS = 1e-3
"""Smaller delays are not reported: they may come from the gang's own bookkeeping."""


def mad_sigma(values: Sequence[float]) -> float:
    """Robust standard deviation: 1.4826 times the median distance from the median."""
    middle = median(values)
    return MAD_TO_SIGMA * median(abs(value - middle) for value in values)


def critical_score(num_judged: int, *, window_seconds: float, freedom: float = inf) -> float:
    """Score t from which one of `num_judged` values is reported: num_judged·86400/window·(1 - Phi(t)) <= 0.01 a day.

    Args:
        num_judged: Values that are judged at the end of each window.
        window_seconds: Between two judgements.
        freedom: Degrees of freedom of the noise that the score is divided by; the fewer, the larger the score must be,
            as Student's distribution has it.

    Source:
        Wallace, "Bounds on normal approximations to Student's and the chi-square distributions" (1959), for `freedom`.
    """
    judged_a_day = num_judged * 86_400 / max(window_seconds, 1e-3)
    normal = -NormalDist().inv_cdf(min(FALSE_ALARMS_PER_DAY / judged_a_day, 0.5))
    if freedom == inf:
        return normal
    scaled = (normal * (8 * freedom + 3) / (8 * freedom + 1)) ** 2 / freedom
    return sqrt(freedom * (exp(min(scaled, 600.0)) - 1))


@dataclass(frozen=True, slots=True)
class Noise:
    """What the ratio of a rank that is not slow does."""

    sigma: float
    """Deviation from one window to the next."""
    spread: float
    """Lasting differences between peers; 0 where they are too few to be known."""
    freedom: float
    """Degrees of freedom of `sigma`."""

    @staticmethod
    def of_jumps(jumps: Sequence[float], *, typical: float, peers: int, spread: float) -> "Noise":
        """Noise of one rank.

        Args:
            jumps: Changes of its ratio from window to window.
            typical: Median size of such a change over all peers: noise is at least that of the peers.
            peers: Number of ranks that are compared.
            spread: Robust deviation of the peers' ratios within a window, noise included.
        """
        own = sqrt(sum(each**2 for each in jumps) / len(jumps)) / (1 + _CHANCE / sqrt(len(jumps))) if jumps else 0.0
        usual = MAD_TO_SIGMA * typical / sqrt(2)
        shown = max(usual, own / sqrt(2))
        freedom = _JUMP_FREEDOM * (peers - 1) * len(jumps)
        whole = freedom + _FIRST_FREEDOM
        sigma = sqrt((freedom * shown**2 + _FIRST_FREEDOM * _FIRST_SIGMA**2) / whole)
        return Noise(sigma, sqrt(max(0.0, spread**2 - usual**2)), whole)

    def of_median(self, windows: int) -> float:
        """Standard error of the median over so many windows."""
        error = _MEDIAN_ERROR if windows > 2 else 1.0
        return sqrt((error * self.sigma) ** 2 / windows + self.spread**2)


def window_steps(step_seconds: float) -> int:
    """Steps of a window that is soon over, and long enough for noise to average out.

    Five steps show a delay of 10 % among a thousand ranks whose steps vary by 3 %.
    """
    return max(FEWEST_STEPS, min(MOST_STEPS, ceil(WINDOW_SECONDS / step_seconds))) if step_seconds > 0 else MOST_STEPS


def why_not_judged(device: str) -> str:
    """Why no rank of a gang on such devices may be called slow; empty if its waits are measured."""
    if device == "cpu":
        return ""
    return (
        f"slow ranks are not judged: collectives run in parallel with the computation of a {device} device; waits are "
        "not measured on it, and without them all ranks seem to work equally long; gangline profile shows single steps"
    )


@dataclass(frozen=True, slots=True)
class _Window:
    """One window with what is computed from it once."""

    times: Sequence[WindowTimes]
    seconds: float
    """Time from its first to its last step."""
    ratios: dict[PeerGroup, float]
    spread: dict[int, float]
    """Robust deviation of the ratios of the cells of each stage."""
    highest: dict[int, list[tuple[float, PeerGroup]]]
    """The two largest ratios of each stage."""
    jump: dict[int, float]
    """Typical change of a cell's ratio since the window before, of each stage; empty for the first."""


@dataclass
class StragglerDetector:
    """Takes one window after another; reports a rank once, and again only after it recovered."""

    cell_of: Callable[[int], PeerGroup]
    stragglers: dict[int, Straggler] = field(default_factory=dict)
    """Ranks that are slow now."""
    _windows: deque[_Window] = field(default_factory=lambda: deque(maxlen=max(LOOKBACKS)))

    def add_window(
        self, window: Sequence[WindowTimes], *, steps: int = MOST_STEPS
    ) -> tuple[list[Straggler], list[Straggler]]:
        """Add the times of all ranks over `steps` steps, by rank; returns who became slow, and who recovered."""
        stages = peer_groups(self.cell_of, len(window))
        self._windows.append(_read(window, steps, stages, self._windows[-1] if self._windows else None))
        if len(self._windows) < LOOKBACKS[0]:
            return [], []
        found = {each.rank: each for cells in stages.values() for each in self._slow(cells)}
        over = [
            self._range(self._counts()[0]).describe(rank, cells)
            for cells in stages.values()
            for cell, ranks in cells.items()
            for rank in self.stragglers
            if rank in ranks and self._is_quick(cell, cells)
        ]
        new = [each for rank, each in found.items() if rank not in self.stragglers]
        for straggler in over:
            del self.stragglers[straggler.rank]
        self.stragglers |= found
        return new, over

    def forget(self) -> None:
        """Drop all windows: the shares have changed."""
        self._windows.clear()

    @property
    def recent(self) -> WindowRange | None:
        """The windows of the shortest lookback; None if there are too few."""
        return self._range(LOOKBACKS[0]) if len(self._windows) >= LOOKBACKS[0] else None

    def _slow(self, cells: PeerGroups) -> list[Straggler]:
        """The slow ranks of cells that do the same work."""
        if len(cells) < 2:
            return []
        found: dict[int, Straggler] = {}
        for cell in cells:
            if self._windows[-1].ratios[cell] >= _least(cells) and not self._is_quick(cell, cells):
                counts = [count for count in self._counts() if self._stands_out(cell, cells, count)]
                if counts and (straggler := self._name(cell, cells, max(counts))) is not None:
                    found[straggler.rank] = straggler
        return list(found.values())

    def _counts(self) -> list[int]:
        """Numbers of windows that are looked back on."""
        seconds = self._windows[-1].seconds
        soon = min(ceil(LASTS_SECONDS / seconds), LOOKBACKS[0]) if seconds else LOOKBACKS[0]
        known = len(self._windows)
        return sorted({soon, min(soon + 1, LOOKBACKS[0]), known, *(count for count in LOOKBACKS if count <= known)})

    def _stands_out(self, cell: PeerGroup, cells: PeerGroups, count: int) -> bool:
        """Whether its ratios over the last `count` windows exceed the noise."""
        row = [window.ratios[cell] for window in list(self._windows)[-count:]]
        if sum(each >= _least(cells) for each in row) < MOSTLY * count:
            return False
        noise = self._noise(cell, cells, count)
        last = self._windows[-1]
        critical = critical_score(
            len(last.ratios) * len(self._counts()),
            window_seconds=last.seconds,
            freedom=noise.freedom,
        )
        if median(row) < max(_least(cells), 1 + critical * noise.of_median(count)):
            return False
        return count >= LOOKBACKS[0] or median(row) - 1 >= BEYOND * self._farthest_of_peers(cell, count)

    def _farthest_of_peers(self, cell: PeerGroup, count: int) -> float:
        """How far any other cell of this stage exceeded its peers in a single window, before the last `count`."""
        before = [window.highest[cell.stage] for window in list(self._windows)[:-count]]
        return max(ratio for highest in before for ratio, other in highest if other != cell) - 1

    def _noise(self, cell: PeerGroup, cells: PeerGroups, count: int) -> Noise:
        """Noise of this cell and of its peers, before the last `count` windows where enough are known.

        Differences of consecutive windows are used, because a drift is not noise. The median over all cells keeps one
        cell whose work changed from hiding others; of the cell itself every jump counts, for it may be the only
        unstable one.
        """
        windows = list(self._windows)
        if len(windows) - count >= LOOKBACKS[0]:
            windows = windows[:-count]
        stage = cell.stage
        jumps = [after.ratios[cell] - before.ratios[cell] for before, after in pairwise(windows)]
        spread = median(window.spread[stage] for window in windows) if len(cells) >= MANY else 0.0
        typical = median(window.jump[stage] for window in windows if window.jump)
        return Noise.of_jumps(jumps, typical=typical, peers=len(cells), spread=spread)

    def _name(self, cell: PeerGroup, cells: PeerGroups, count: int) -> Straggler | None:
        """The rank of this cell that waits least, if the cell waits less than its peers and costs enough."""
        seen = self._range(count)
        if not seen.waits_less(cell, cells):
            return None
        straggler = seen.describe(min(cells[cell], key=seen.wait_share), cells)
        return straggler if straggler.seconds >= LEAST_SECONDS else None

    def _is_quick(self, cell: PeerGroup, cells: PeerGroups) -> bool:
        """Whether it is not slow, or no longer."""
        count = self._counts()[0]
        over = OVER if len(cells) < MANY else (1 + SLOWER_OF_MANY) / 2
        return median(window.ratios[cell] for window in list(self._windows)[-count:]) < over

    def _range(self, count: int) -> WindowRange:
        return WindowRange([window.times for window in list(self._windows)[-count:]])


def _least(cells: PeerGroups) -> float:
    """Least ratio that is reported among so many peers."""
    return SLOWER if len(cells) < MANY else SLOWER_OF_MANY


def _read(window: Sequence[WindowTimes], steps: int, stages: dict[int, PeerGroups], before: _Window | None) -> _Window:
    found: dict[PeerGroup, float] = {}
    spread, highest, jump = {}, {}, {}
    for stage, cells in stages.items():
        own = ratios(window, cells)
        found |= own
        highest[stage] = nlargest(2, ((ratio, cell) for cell, ratio in own.items()))
        spread[stage] = mad_sigma(list(own.values()))
        if before is not None:
            jump[stage] = median(abs(own[cell] - before.ratios[cell]) for cell in cells)
    return _Window(window, steps * median(each.seconds for each in window), found, spread, highest, jump)
