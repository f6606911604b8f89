"""What servers notice of the workers of a run: who has pushed nothing for long, who is back, who is slow. Pure.

A worker that joined may leave at any time without a word, so only the run's own workers are missed.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from gangline.train.parameters.layout import BlockPush

SILENT_SECONDS = 60.0
"""Least time without a merged push after which a worker is called silent."""
BLOCKS_OF_SILENCE = 3
"""Blocks, each as long as the longest one seen, that a silence lasts at least."""
SLOW = 1.5
"""Ratio of a worker's time for a sample to that of the others from which it is called slow."""
FEWEST_BLOCKS = 10
"""Newest blocks of each worker that are compared; fewer say nothing."""


class WorkerWatch:
    """Sees merged pushes; a silence, its end and a slow worker are an event once each."""

    def __init__(self, workers: int, *, now: float) -> None:
        """`now` is of any clock that only goes forward, as everywhere here."""
        self._last = dict.fromkeys(range(1, workers + 1), now)
        """When a push of each worker was last merged."""
        self._silent: set[int] = set()
        self._slow: set[int] = set()
        self._longest = 0.0
        self._paces: dict[int, deque[float]] = defaultdict(lambda: deque(maxlen=FEWEST_BLOCKS))
        """Seconds for a sample in the newest blocks of each worker."""

    def longest_silence(self, now: float) -> tuple[int, float]:
        """The worker that has pushed nothing for the longest time, and that time."""
        worker = min(self._last, key=self._last.__getitem__)
        return worker, now - self._last[worker]

    def see(self, pushes: Sequence[BlockPush], *, now: float) -> Iterator[tuple[str, dict[str, Any]]]:
        """Events that follow from pushes which were merged now, each with its fields."""
        for push in pushes:
            self._longest = max(self._longest, push.seconds)
            self._paces[push.worker].append(push.seconds / push.samples)
        for worker in sorted({push.worker for push in pushes} & self._last.keys()):
            if worker in self._silent:
                self._silent.remove(worker)
                without = sum(push.silent_seconds for push in pushes if push.worker == worker)
                yield "worker_back", {"worker": worker, "seconds": now - self._last[worker], "without_store": without}
            self._last[worker] = now
        for worker, last in self._last.items():
            if worker not in self._silent and now - last > max(SILENT_SECONDS, BLOCKS_OF_SILENCE * self._longest):
                self._silent.add(worker)
                yield "worker_silent", {"worker": worker, "seconds": now - last}
        yield from self._slow_ones()

    def _slow_ones(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Workers that are slow and were not named yet."""
        paces = {worker: median(each) for worker, each in self._paces.items() if len(each) == FEWEST_BLOCKS}
        for worker, pace in paces.items():
            others = [each for other, each in paces.items() if other != worker]
            usual = median(others) if others else 0.0  # 0: blocks too short to be measured
            if worker not in self._slow and 0 < SLOW * usual <= pace:
                self._slow.add(worker)
                yield "worker_slow", {"worker": worker, "ratio": pace / usual}
