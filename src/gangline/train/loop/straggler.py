"""Detection of slow ranks from windows of step times. Pure: every rank gets the same result.

All steps of a gang take equally long, so only a rank's own work, without its waiting, shows which is slow; the slow
rank waits least. Ranks that share a sample (tensor and context peers) wait for each other inside their passes, where it
looks like work: they are compared as one *cell*. Stages of a pipeline do different work: a cell is compared within its
stage.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import NamedTuple

WORK = ("data", "forward", "backward", "optimizer", "other")
"""Phases of a step that are a rank's own work."""
BY_SAMPLE = ("data", "forward", "backward")
"""Phases whose time is proportional to the samples."""
LOOKBACKS = (6, 30)
"""Windows that are considered: what stands out is found soon, what is close to the noise later."""
MOSTLY = 0.8
"""Share of the windows in which a rank must be the slowest."""
SLOWER = 1.05
"""Ratio of own time to the others' from which a rank is reported as slow."""
OVER = 1.02
"""Below this ratio it is no longer slow."""
LEAST_SECONDS = 1e-3
"""Smaller delays are not reported: they may come from the gang's own bookkeeping."""
CERTAIN = 5.0
"""Standard errors by which the ratio must exceed the noise."""
_MAD_TO_SIGMA = 1.4826
_MEDIAN_ERROR = 1.2533
"""Ratio of the standard errors of median and mean, for normal values."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowTimes:
    """Times of one rank over one window, in seconds per step."""

    work: Mapping[str, float]
    """By phase of WORK."""
    wait: float
    samples: float
    """Samples per step: they differ between ranks in rebalanced work."""

    @property
    def per_sample(self) -> float:
        """Seconds of work per sample, in the phases that grow with samples."""
        return sum(self.work[phase] for phase in BY_SAMPLE) / (self.samples or 1.0)

    @property
    def wait_share(self) -> float:
        """Share of the time in which the rank waited, 0 to 1."""
        whole = self.wait + sum(self.work.values())
        return self.wait / whole if whole else 0.0

    def own(self, usual: float) -> float:
        """Seconds of its work, scaled to `usual` samples."""
        return sum(self.at(phase, usual) for phase in self.work)

    def at(self, phase: str, usual: float) -> float:
        """Seconds in `phase`, scaled to `usual` samples if they grow with samples."""
        seconds = self.work[phase]
        return seconds * usual / self.samples if phase in BY_SAMPLE and self.samples else seconds


class PeerGroup(NamedTuple):
    """Ranks that see the same samples at the same depth."""

    stage: int
    data: int
    """Place among the data-parallel ranks."""


PeerGroups = dict[PeerGroup, list[int]]
"""Ranks by cell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Straggler:
    """A rank that is or was slow."""

    rank: int
    ratio: float
    """Ratio of its own time to the median of the others'."""
    seconds: float
    """Extra seconds per step."""
    phase: str
    """Phase with most of the extra time."""
    wait_share: float
    """Share of its own step that it waits: the least of all."""


@dataclass
class StragglerDetector:
    """Takes one window after another; reports a rank once, and again only after it recovered."""

    cell_of: Callable[[int], PeerGroup]
    stragglers: dict[int, Straggler] = field(default_factory=dict)
    """Ranks that are slow now."""
    _windows: deque[Sequence[WindowTimes]] = field(default_factory=lambda: deque(maxlen=max(LOOKBACKS)))

    def add_window(self, window: Sequence[WindowTimes]) -> tuple[list[Straggler], list[Straggler]]:
        """Add the times of all ranks, by rank; returns ranks that became slow, and ranks that recovered."""
        self._windows.append(window)
        if len(self._windows) < LOOKBACKS[0]:
            return [], []
        groups = _groups(self.cell_of, len(window))
        ranges = [
            WindowRange(list(self._windows)[-count:])
            for count in (*LOOKBACKS, len(self._windows))
            if count <= len(self._windows)
        ]
        found = {
            each.rank: each
            for cells in groups
            for window_range in ranges
            if (each := window_range.slowest(cells, noise=ranges[-1].noise(cells))) is not None
            and ranges[0].quick(each.rank, cells) is None  # it was slow and has recovered
        }
        over = [
            now for cells in groups for rank in self.stragglers if (now := ranges[0].quick(rank, cells)) is not None
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
    def recent(self) -> "WindowRange | None":
        """The windows of the shortest lookback; None if there are too few."""
        return WindowRange(list(self._windows)[-LOOKBACKS[0] :]) if len(self._windows) >= LOOKBACKS[0] else None


@dataclass(frozen=True, slots=True)
class WindowRange:
    """Consecutive windows."""

    windows: Sequence[Sequence[WindowTimes]]

    def noise(self, cells: PeerGroups) -> dict[PeerGroup, float]:
        """Sigma of each cell's ratio from window to window, at least the typical one of all cells.

        Differences of consecutive windows are used, because a drift is not noise. The median over all cells keeps one
        cell whose work changed from hiding others; of each cell every jump counts, for it may be the only unstable one.
        """
        steps = {
            cell: [abs(after - before) for before, after in pairwise(row)] for cell, row in self._ratios(cells).items()
        }
        every = [each for row in steps.values() for each in row]
        usual = _MAD_TO_SIGMA * median(every) if every else float("inf")
        few = 1 + 2 / len(self.windows)
        return {cell: max(usual, _root_mean_square(row)) / 2**0.5 * few for cell, row in steps.items()}

    def slowest(self, cells: PeerGroups, *, noise: Mapping[PeerGroup, float]) -> Straggler | None:
        """The slowest of cells that do the same work, if it exceeds the noise."""
        if len(cells) < 2:
            return None
        ratios = self._ratios(cells)
        middle = {cell: median(row) for cell, row in ratios.items()}
        cell = max(middle, key=lambda each: middle[each])
        rows = zip(*ratios.values(), strict=True)
        often = sum(own >= SLOWER and own == max(row) for own, row in zip(ratios[cell], rows, strict=True))
        clear = max(SLOWER, 1 + CERTAIN * _MEDIAN_ERROR * noise[cell] / len(self.windows) ** 0.5)
        if often < MOSTLY * len(self.windows) or middle[cell] < clear or not self._waits_least(cell, cells):
            return None
        found = self._describe(min(cells[cell], key=self._wait), cells)
        return found if found.seconds >= LEAST_SECONDS else None

    def quick(self, rank: int, cells: PeerGroups) -> Straggler | None:
        """The current state of a rank of these cells, if it is no longer slow."""
        if not any(rank in ranks for ranks in cells.values()):
            return None
        now = self._describe(rank, cells)
        return now if now.ratio < OVER else None

    def seconds_per_sample(self, ranks: Sequence[int]) -> float:
        """Median over the windows of the slowest rank's seconds per sample."""
        return median(max(window[rank].per_sample for rank in ranks) for window in self.windows)

    def _ratios(self, cells: PeerGroups) -> dict[PeerGroup, list[float]]:
        """By cell and window: ratio of own time to the median of the other cells'."""
        found: dict[PeerGroup, list[float]] = {cell: [] for cell in cells}
        for window in self.windows:
            usual = _usual(window)
            own = {cell: max(window[rank].own(usual) for rank in ranks) for cell, ranks in cells.items()}
            for cell in cells:
                others = median(seconds for other, seconds in own.items() if other != cell)
                found[cell].append(own[cell] / others if others > 0 else 1.0)
        return found

    def _describe(self, rank: int, cells: PeerGroups) -> Straggler:
        others = [each for ranks in cells.values() if rank not in ranks for each in ranks]
        longer = {phase: self._typical([rank], phase) - self._typical(others, phase) for phase in WORK}
        usual = sum(self._typical(others, phase) for phase in WORK)
        seconds = sum(longer.values())
        return Straggler(
            rank=rank,
            ratio=1 + seconds / usual if usual else 1.0,
            seconds=seconds,
            phase=max(longer, key=lambda phase: longer[phase]),
            wait_share=self._wait(rank),
        )

    def _typical(self, ranks: Sequence[int], phase: str) -> float:
        """Median over ranks and windows of the seconds of `phase` per step."""
        return median(window[rank].at(phase, _usual(window)) for window in self.windows for rank in ranks)

    def _wait(self, rank: int) -> float:
        """Median over the windows of the share that a rank waits."""
        return median(window[rank].wait_share for window in self.windows)

    def _waits_least(self, cell: PeerGroup, cells: PeerGroups) -> bool:
        """Whether the cell waits least; always true in rebalanced work, where a larger share waits least."""
        if any(len({each.samples for each in window}) > 1 for window in self.windows):
            return True
        waits = {each: min(map(self._wait, ranks)) for each, ranks in cells.items()}
        return waits[cell] <= min(waits.values())


def _groups(cell_of: Callable[[int], PeerGroup], world_size: int) -> list[PeerGroups]:
    """Cells that do the same work; if all ranks share their samples, each rank is a cell."""
    groups: dict[int, PeerGroups] = {}
    for rank in range(world_size):
        cell = cell_of(rank)
        groups.setdefault(cell.stage, {}).setdefault(cell, []).append(rank)
    return [_split(cells) for cells in groups.values()]


def _split(cells: PeerGroups) -> PeerGroups:
    if len(cells) > 1:
        return cells
    return {PeerGroup(cell.stage, rank): [rank] for cell, ranks in cells.items() for rank in ranks}


def _usual(window: Sequence[WindowTimes]) -> float:
    """Mean samples of a rank's step."""
    return sum(each.samples for each in window) / len(window)


def _root_mean_square(values: Sequence[float]) -> float:
    return (sum(each**2 for each in values) / len(values)) ** 0.5 if values else 0.0
