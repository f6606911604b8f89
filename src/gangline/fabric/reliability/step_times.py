"""Times of ranks over windows of steps: who waits, whose own work is longer, and in which phase. Pure."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple, TypeVar

WORK = ("data", "forward", "backward", "optimizer", "other")
"""Phases of a step that are a rank's own work."""
BY_SAMPLE = ("data", "forward", "backward")
"""Phases whose time is proportional to the samples."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowTimes:
    """Times of one rank over one window, in seconds per step."""

    work: Mapping[str, float]
    """Seconds of each phase of WORK."""
    wait: float
    samples: float
    """Samples per step: they differ between ranks in rebalanced work."""

    @property
    def seconds(self) -> float:
        """Duration of a whole step."""
        return self.wait + sum(self.work.values())

    @property
    def per_sample(self) -> float:
        """Seconds of work per sample, in the phases that grow with samples."""
        return sum(self.work[phase] for phase in BY_SAMPLE) / (self.samples or 1.0)

    @property
    def wait_share(self) -> float:
        """Share of the time in which the rank waited, 0 to 1."""
        return self.wait / self.seconds if self.seconds else 0.0

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


MOST_COMPARED = 64
"""Peers that a slow rank's phases and waits are compared with, at least; all are judged by their own time."""
T = TypeVar("T")
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
    step_seconds: float
    """Duration of the gang's step, which `seconds` is a part of."""
    phase: str
    """Phase with most of the extra time."""
    wait_share: float
    """Share of its own step that it waits: the least of all."""


def peer_groups(cell_of: Callable[[int], PeerGroup], world_size: int) -> dict[int, PeerGroups]:
    """Cells of each stage that do the same work; if all ranks of a stage share their samples, each rank is a cell."""
    stages: dict[int, PeerGroups] = {}
    for rank in range(world_size):
        cell = cell_of(rank)
        stages.setdefault(cell.stage, {}).setdefault(cell, []).append(rank)
    for stage, cells in stages.items():
        if len(cells) == 1:
            stages[stage] = {PeerGroup(stage, rank): [rank] for ranks in cells.values() for rank in ranks}
    return stages


def ratios(window: Sequence[WindowTimes], cells: PeerGroups) -> dict[PeerGroup, float]:
    """Ratio of each cell: its own time over the median of the other cells'; 1 where nothing can be compared."""
    usual = usual_samples(window)
    own = {cell: max(window[rank].own(usual) for rank in ranks) for cell, ranks in cells.items()}
    ordered = sorted(own.values())
    return {cell: _ratio(seconds, ordered) for cell, seconds in own.items()}


def _ratio(seconds: float, ordered: Sequence[float]) -> float:
    """Ratio of one of the `ordered` values to the median of the others, without sorting them again."""
    others, place = len(ordered) - 1, bisect_left(ordered, seconds)
    if others < 1:
        return 1.0
    low, high = ((each if each < place else each + 1) for each in ((others - 1) // 2, others // 2))
    middle = (ordered[low] + ordered[high]) / 2
    return seconds / middle if middle > 0 else 1.0


def _sample(peers: Sequence[T]) -> Sequence[T]:
    """Enough of them for a median, evenly: every rank of a large gang computes this after each window."""
    return peers[:: max(1, len(peers) // MOST_COMPARED)]


def usual_samples(window: Sequence[WindowTimes]) -> float:
    """Mean samples of a rank's step."""
    return sum(each.samples for each in window) / len(window)


@dataclass(frozen=True, slots=True)
class WindowRange:
    """Consecutive windows."""

    windows: Sequence[Sequence[WindowTimes]]

    def seconds_per_sample(self, ranks: Sequence[int]) -> float:
        """Median over the windows of the slowest rank's seconds per sample."""
        return median(max(window[rank].per_sample for rank in ranks) for window in self.windows)

    def describe(self, rank: int, cells: PeerGroups) -> Straggler:
        """Where `rank` is slower than the ranks of the other cells, and by how much."""
        others = _sample([each for ranks in cells.values() if rank not in ranks for each in ranks])
        longer = {phase: self._typical([rank], phase) - self._typical(others, phase) for phase in WORK}
        usual = sum(self._typical(others, phase) for phase in WORK)
        seconds = sum(longer.values())
        return Straggler(
            rank=rank,
            ratio=1 + seconds / usual if usual else 1.0,
            seconds=seconds,
            step_seconds=median(each.seconds for window in self.windows for each in window),
            phase=max(longer, key=lambda phase: longer[phase]),
            wait_share=self.wait_share(rank),
        )

    def wait_share(self, rank: int) -> float:
        """Median over the windows of the share that a rank waits."""
        return median(window[rank].wait_share for window in self.windows)

    def waits_less(self, cell: PeerGroup, cells: PeerGroups) -> bool:
        """Whether the cell waits no longer than its peers; true in rebalanced work, where larger shares wait least."""
        if any(len({each.samples for each in window}) > 1 for window in self.windows):
            return True
        peers = _sample([ranks for group, ranks in cells.items() if group != cell])
        waits = (min(map(self.wait_share, ranks)) for ranks in peers)
        return min(map(self.wait_share, cells[cell])) <= median(waits)

    def _typical(self, ranks: Sequence[int], phase: str) -> float:
        """Median over ranks and windows of the seconds of `phase` per step."""
        usual = [usual_samples(window) for window in self.windows]
        return median(
            window[rank].at(phase, each) for window, each in zip(self.windows, usual, strict=True) for rank in ranks
        )
