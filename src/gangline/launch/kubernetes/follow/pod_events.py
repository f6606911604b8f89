"""Events from the pods' stdout: all events of rank 0, and the steps of other ranks once a second."""

import time
from collections.abc import Iterator
from typing import Any

from gangline.launch.protocol import GangEvent
from gangline.spec.gang.pod_output import parse
from gangline.spec.gang.status import KeeperStatus

_OTHERS_SECONDS = 1.0
_KEEPER_EVENTS = {"restart": "restart", "watchdog": "note", "resized": "note"}


class PodEvents:
    """Turns lines into events, and stores the latest status of each keeper by node rank."""

    def __init__(self) -> None:
        self.statuses: dict[int, KeeperStatus] = {}
        self._steps: dict[int, dict[str, Any]] = {}
        self._flushed = time.monotonic()
        self._restarts: set[int] = set()

    @property
    def world_size(self) -> int:
        """Ranks of the latest generation; 0: no keeper reported one."""
        latest = max(self.statuses.values(), key=lambda status: status.generation, default=None)
        return latest.world_size if latest else 0

    @property
    def joined(self) -> int:
        """Number of ranks that have joined the current generation."""
        return sum(len(each.joined) for each in self.statuses.values())

    @property
    def generation(self) -> int:
        """Highest generation that a keeper reported."""
        return max((each.generation for each in self.statuses.values()), default=0)

    @property
    def restarts(self) -> int:
        """Highest number of restarts that a keeper reported."""
        return max((each.restarts for each in self.statuses.values()), default=0)

    @property
    def leaving(self) -> set[int]:
        """Nodes whose keepers are done with the latest generation, so that a pod that is not ready is not starting."""
        latest = [each for each in self.statuses.values() if each.generation == self.generation]
        return {each.node_rank for each in latest if each.state in ("stopping", "ended")}

    def take(self, line: str) -> Iterator[GangEvent]:
        """Events of one line of a pod's stdout; lines of keeper status are stored instead."""
        said = parse(line)
        if said.status is not None:
            self.statuses[said.status.node_rank] = said.status
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
        if not isinstance(rank, int):
            return
        if rank != 0 and event.get("event") == "step":
            self._steps[rank] = event
        else:
            yield _progress(event)


def _progress(event: dict[str, Any]) -> GangEvent:
    return GangEvent(kind="progress", text=str(event.get("event", "")), data=event)
