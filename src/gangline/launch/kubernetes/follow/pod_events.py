"""Events from the pods' stdout: all events of rank 0, and the steps of other ranks once a second."""

import time
from collections.abc import Collection, Iterator
from typing import Any

from gangline.launch.protocol import GangEvent
from gangline.spec.gang.pod_output import parse
from gangline.spec.gang.rank_events import is_usable
from gangline.spec.gang.status import KeeperStatus

_OTHERS_SECONDS = 1.0
_KEEPER_EVENTS = {"restart": "restart", "watchdog": "note", "resized": "note"}


class PodEvents:
    """Turns lines into events, and stores the latest status of each keeper by the uid of its pod.

    Attributes:
        generation: Highest generation that a keeper reported.
        restarts: Highest number of restarts that a keeper reported.
    """

    def __init__(self) -> None:
        self.generation = self.restarts = 0
        self._statuses: dict[str, KeeperStatus] = {}
        self._steps: dict[int, dict[str, Any]] = {}
        self._flushed = time.monotonic()
        self._restarts: set[int] = set()

    def statuses_of(self, uids: Collection[str]) -> dict[str, KeeperStatus]:
        """Latest status of each of these pods that has reported one; those of all other pods are forgotten."""
        self._statuses = {uid: status for uid, status in self._statuses.items() if uid in uids}
        return self._statuses

    def take(self, uid: str, line: str) -> Iterator[GangEvent]:
        """Events of one line of the stdout of pod `uid`; lines of keeper status are stored instead."""
        said = parse(line)
        if said.status is not None:
            self._statuses[uid] = said.status
            self.generation = max(self.generation, said.status.generation)
            self.restarts = max(self.restarts, said.status.restarts)
        elif said.event is not None and "keeper" in said.event:
            yield from self._keeper(said.event)
        elif said.event is not None:
            yield from self._rank(said.event)

    def flush(self, *, now: bool = False) -> Iterator[GangEvent]:
        """The latest steps of the other ranks, at most once a second unless `now`."""
        if not now and time.monotonic() - self._flushed < _OTHERS_SECONDS:
            return
        self._flushed = time.monotonic()
        steps, self._steps = self._steps, {}
        yield from (_progress(event) for _, event in sorted(steps.items()))

    def _keeper(self, event: dict[str, Any]) -> Iterator[GangEvent]:
        """Every keeper reports the same restart; only the first report becomes an event."""
        kind = _KEEPER_EVENTS.get(str(event.get("event")))
        if kind == "restart":
            generation = event.get("generation")
            if isinstance(generation, int) and generation in self._restarts:
                return
            if isinstance(generation, int):
                self._restarts.add(generation)
            yield GangEvent(kind="restart", text=str(event.get("reason", "")), data=event)
        elif kind == "note":
            yield GangEvent(kind="note", text=str(event.get("reason", "")), data=event)

    def _rank(self, event: dict[str, Any]) -> Iterator[GangEvent]:
        rank = event.get("rank")
        if not isinstance(rank, int) or not is_usable(event):
            return
        if rank != 0 and event.get("event") == "step":
            self._steps[rank] = event
        else:
            yield _progress(event)


def _progress(event: dict[str, Any]) -> GangEvent:
    return GangEvent(kind="progress", text=str(event.get("event", "")), data=event)
