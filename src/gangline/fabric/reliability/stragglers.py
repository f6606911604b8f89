"""Detection of slow ranks from windows of step times. Pure: every rank gets the same result.

All steps of a gang take equally long, so only a rank's own work, without its waiting, shows which is slow; the slow
rank waits least. Ranks that share a sample (tensor and context peers) wait for each other inside their passes, where it
looks like work: they are compared as one *cell*. Stages of a pipeline do different work: a cell is compared within its
stage. What counts as slow is scaled by `significance`, so that a large gang raises no more false alarms than a small
one.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import pairwise
from math import ceil
from statistics import median

from gangline.fabric.reliability.significance import Noise, critical_score, mad_sigma
from gangline.fabric.reliability.step_times import (
    PeerGroup,
    PeerGroups,
    Straggler,
    WindowRange,
    WindowTimes,
    peer_groups,
    ratios,
)

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
        for each in over:
            del self.stragglers[each.rank]
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
                if counts and (each := self._name(cell, cells, max(counts))) is not None:
                    found[each.rank] = each
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
        spread = median(each.spread[stage] for each in windows) if len(cells) >= MANY else 0.0
        typical = median(each.jump[stage] for each in windows if each.jump)
        return Noise.of_jumps(jumps, typical=typical, peers=len(cells), spread=spread)

    def _name(self, cell: PeerGroup, cells: PeerGroups, count: int) -> Straggler | None:
        """The rank of this cell that waits least, if the cell waits less than its peers and costs enough."""
        seen = self._range(count)
        if not seen.waits_less(cell, cells):
            return None
        found = seen.describe(min(cells[cell], key=seen.wait_share), cells)
        return found if found.seconds >= LEAST_SECONDS else None

    def _is_quick(self, cell: PeerGroup, cells: PeerGroups) -> bool:
        """Whether it is not slow, or no longer."""
        count = self._counts()[0]
        over = OVER if len(cells) < MANY else (1 + SLOWER_OF_MANY) / 2
        return median(window.ratios[cell] for window in list(self._windows)[-count:]) < over

    def _range(self, count: int) -> WindowRange:
        return WindowRange([each.times for each in list(self._windows)[-count:]])


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
