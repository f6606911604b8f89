"""Order of waiting gangs: by priority, then the project that holds fewest servers, then age. Pure.

A project that queues a hundred gangs waits behind its own, and the first gang of another project starts next. Within
one project, and between projects that hold the same, the older gang is first.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from datetime import datetime

from gangline.launch.kubernetes.placement.queued_gangs import QueuedGang


class QueueOrder:
    """Gives each waiting gang once; what starts meanwhile counts for those that follow."""

    def __init__(self, waiting: Iterable[QueuedGang], holding: Iterable[QueuedGang]) -> None:
        """Both of one pool; `holding` are the gangs that have servers."""
        self._held: Counter[str] = Counter()
        for gang in holding:
            self.charge(gang)
        self._queues: dict[str, deque[QueuedGang]] = {}
        for gang in sorted(waiting, key=lambda each: each.turn):
            self._queues.setdefault(gang.wanted.project, deque()).append(gang)

    def charge(self, gang: QueuedGang) -> None:
        """Its project holds this much more."""
        self._held[gang.wanted.project] += gang.wanted.num_pods * gang.wanted.devices_per_pod

    def __iter__(self) -> Iterator[QueuedGang]:
        while self._queues:
            project = min(self._queues, key=self._place)
            yield self._queues[project].popleft()
            if not self._queues[project]:
                del self._queues[project]

    def _place(self, project: str) -> tuple[int, int, datetime, str]:
        priority, queued, name = self._queues[project][0].turn
        return priority, self._held[project], queued, name
