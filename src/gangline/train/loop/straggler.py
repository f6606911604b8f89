"""Who holds the gang up. Pure: times of windows of steps go in, names come out, alike on every rank that is asked.

All steps of a gang last alike, so only a rank's own work, without its waiting, tells who is slow; the slow one waits
least. Ranks that share a sample (tensor and context peers) wait for each other inside their passes, where it shows as
work: they are compared as one *cell*. Stages of a pipeline do different work: a cell is compared within its stage.
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
"""Those that last as long as there are samples."""
LOOKS = (6, 30)
"""Windows that a verdict looks back on: what stands out is named soon, what hides in noise later."""
MOSTLY = 0.8
"""Share of them in which it has to be the slowest."""
SLOWER = 1.05
"""Own time to the others' of a rank that is worth a word."""
OVER = 1.02
"""Below this it is as quick as the others again."""
LEAST_SECONDS = 1e-3
"""A step may be shorter than the gang's own book-keeping: what costs less than this is no straggler."""
CERTAIN = 5.0
"""By how many standard errors the slowness stands out of the noise."""
_MAD_TO_SIGMA = 1.4826
_MEDIAN_ERROR = 1.2533
"""Standard error of a median to that of a mean, of normal numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowTimes:
    """Of one rank over one window, in seconds a step."""

    work: Mapping[str, float]
    """By phase of WORK."""
    wait: float
    samples: float
    """That it computed a step: uneven where work is dealt by speed."""

    @property
    def per_sample(self) -> float:
        return sum(self.work[phase] for phase in BY_SAMPLE) / (self.samples or 1.0)

    @property
    def wait_share(self) -> float:
        whole = self.wait + sum(self.work.values())
        return self.wait / whole if whole else 0.0

    def own(self, usual: float) -> float:
        """Its work, as long as it would take for `usual` samples."""
        return sum(self.at(phase, usual) for phase in self.work)

    def at(self, phase: str, usual: float) -> float:
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
    """A rank that is slow, or was."""

    rank: int
    ratio: float
    """Its own time to the median of the others'."""
    seconds: float
    """By which it is longer, each step."""
    phase: str
    """Where most of that is spent."""
    wait_share: float
    """Of its own step, spent waiting: the least of all."""


@dataclass
class StragglerDetector:
    """Hears one window after another; names a rank once, and again only after it was quick."""

    cell_of: Callable[[int], PeerGroup]
    named: dict[int, Straggler] = field(default_factory=dict)
    """Who is slow now."""
    _windows: deque[Sequence[WindowTimes]] = field(default_factory=lambda: deque(maxlen=max(LOOKS)))

    def hear(self, window: Sequence[WindowTimes]) -> tuple[list[Straggler], list[Straggler]]:
        """Take the times of all ranks, by rank; who is slow since now, and who no longer is, as it is by now."""
        self._windows.append(window)
        if len(self._windows) < LOOKS[0]:
            return [], []
        groups = _groups(self.cell_of, len(window))
        looks = [
            WindowRange(list(self._windows)[-count:])
            for count in (*LOOKS, len(self._windows))
            if count <= len(self._windows)
        ]
        found = {
            each.rank: each
            for cells in groups
            for look in looks
            if (each := look.slowest(cells, noise=looks[-1].noise(cells))) is not None
            and looks[0].quick(each.rank, cells) is None  # it was slow, and is no more
        }
        over = [now for cells in groups for rank in self.named if (now := looks[0].quick(rank, cells)) is not None]
        new = [each for rank, each in found.items() if rank not in self.named]
        for each in over:
            del self.named[each.rank]
        self.named |= found
        return new, over

    def forget(self) -> None:
        """The work was dealt anew: what was seen before says nothing about what comes."""
        self._windows.clear()

    @property
    def recent(self) -> "WindowRange | None":
        """As many windows as the shortest verdict rests on; None: they are not there yet."""
        return WindowRange(list(self._windows)[-LOOKS[0] :]) if len(self._windows) >= LOOKS[0] else None


@dataclass(frozen=True, slots=True)
class WindowRange:
    """Some windows in a row."""

    windows: Sequence[Sequence[WindowTimes]]

    def noise(self, cells: PeerGroups) -> dict[PeerGroup, float]:
        """By how much ratios of each cell differ from window to window (sigma), and at least as those of all do.

        A drift is no noise, and few windows tell little. Of all cells the middle counts, so that one whose work changed
        hides nobody; of one cell every jump does, for it may be the only one that is restless.
        """
        steps = {
            cell: [abs(after - before) for before, after in pairwise(row)] for cell, row in self._ratios(cells).items()
        }
        every = [each for row in steps.values() for each in row]
        usual = _MAD_TO_SIGMA * median(every) if every else float("inf")
        few = 1 + 2 / len(self.windows)
        return {cell: max(usual, _root_mean_square(row)) / 2**0.5 * few for cell, row in steps.items()}

    def slowest(self, cells: PeerGroups, *, noise: Mapping[PeerGroup, float]) -> Straggler | None:
        """The slowest of cells that do the same work, if it stands out of `noise`."""
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
        """A rank of these cells, as it is by now, if it is as quick as the others."""
        if not any(rank in ranks for ranks in cells.values()):
            return None
        now = self._describe(rank, cells)
        return now if now.ratio < OVER else None

    def seconds_per_sample(self, ranks: Sequence[int]) -> float:
        """What a sample costs the slowest of `ranks`, in the middle of the windows."""
        return median(max(window[rank].per_sample for rank in ranks) for window in self.windows)

    def _ratios(self, cells: PeerGroups) -> dict[PeerGroup, list[float]]:
        """By cell and window: own time to the median of the other cells'."""
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
        """Seconds a step of `phase`, in the middle of ranks and windows."""
        return median(window[rank].at(phase, _usual(window)) for window in self.windows for rank in ranks)

    def _wait(self, rank: int) -> float:
        """Share of its steps that a rank waits, in the middle of the windows."""
        return median(window[rank].wait_share for window in self.windows)

    def _waits_least(self, cell: PeerGroup, cells: PeerGroups) -> bool:
        """True where work is dealt unevenly, too: there the one with most of it waits least."""
        if any(len({each.samples for each in window}) > 1 for window in self.windows):
            return True
        waits = {each: min(map(self._wait, ranks)) for each, ranks in cells.items()}
        return waits[cell] <= min(waits.values())


def _groups(cell_of: Callable[[int], PeerGroup], world_size: int) -> list[PeerGroups]:
    """Cells that do the same work; ranks as cells of their own where all share their samples."""
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
    """Samples of a rank's step if all had alike many."""
    return sum(each.samples for each in window) / len(window)


def _root_mean_square(values: Sequence[float]) -> float:
    return (sum(each**2 for each in values) / len(values)) ** 0.5 if values else 0.0
