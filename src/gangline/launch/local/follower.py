"""Events of a local gang from its growing files: every event of rank 0, the latest step of others once a second."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gangline.launch.local.folder import GangFolder
from gangline.launch.protocol import GangEvent, GangStatus
from gangline.spec.gang.status import read_event
from gangline.storage.folder.safe_paths import read_below


class Tail:
    """Whole lines only; a torn last line waits for its end."""

    def __init__(self, path: Path, *, below: Path | None = None) -> None:
        """Of `path`, where no link is followed `below` that folder; None: below its own."""
        self._path, self._below = path, below or path.parent
        self._offset = 0

    def lines(self) -> list[str]:
        """Lines since last asked."""
        try:
            if self._path.lstat().st_size < self._offset:  # a log that grew too long begins again
                self._offset = 0
        except FileNotFoundError:
            return []
        data = read_below(self._below, self._path, start=self._offset) or b""
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.decode(errors="replace").splitlines()

    def events(self) -> list[dict[str, Any]]:
        """Lines that are JSON objects; a line that a dying process tore is left out."""
        return [event for event in map(read_event, self.lines()) if event is not None]


POLL_SECONDS = 0.1
_OTHERS_SECONDS = 1.0
GONE_SECONDS = 10.0
"""A folder that is missing for so long was deleted; one on a network may be away for a moment."""


class LocalFollower:
    """One pass over a gang."""

    def __init__(self, folder: GangFolder, *, world_size: int, num_nodes: int, after: dict[int, int]) -> None:
        """`after`: rank to the number of its events that were seen already."""
        self._folder = folder
        self._ranks = {rank: Tail(folder.rank_events(rank), below=folder.inside) for rank in range(world_size)}
        self._keepers = [Tail(folder.keeper_events(node), below=folder.inside) for node in range(num_nodes)]
        self._skip = dict(after)
        self._others_at = 0.0
        self._last: GangStatus | None = None

    def events(self, status: Callable[[], GangStatus]) -> Iterator[GangEvent]:
        """Until the gang has ended, but for the end itself; or until its folder has been missing for long."""
        there = time.monotonic()
        while True:
            now = status()
            if now.state != "absent":
                there = time.monotonic()
            elif time.monotonic() - there > GONE_SECONDS:
                return
            if now != self._last:
                self._last = now
                yield GangEvent(kind="state", text=now.state, status=now)
            ended = now.state == "ended"
            yield from self._keepers_words()
            yield from self._progress(0)
            if ended or time.monotonic() >= self._others_at:
                self._others_at = time.monotonic() + _OTHERS_SECONDS
                yield from self._others()
            if ended:
                return
            time.sleep(POLL_SECONDS)

    def _keepers_words(self) -> Iterator[GangEvent]:
        for tail in self._keepers:
            for event in tail.events():
                kind = {"restart": "restart", "watchdog": "note", "resized": "note"}.get(event.get("event", ""))
                if kind == "restart":
                    yield GangEvent(kind="restart", text=str(event["reason"]), data=event)
                elif kind == "note":
                    yield GangEvent(kind="note", text=str(event["reason"]), data=event)

    def _progress(self, rank: int) -> Iterator[GangEvent]:
        for event in self._new(rank):
            yield GangEvent(kind="progress", text=str(event.get("event", "")), data=event)

    def _others(self) -> Iterator[GangEvent]:
        """Everything but steps; of the steps the last."""
        for rank in self._folder.ranks() - self._ranks.keys():  # an elastic gang has got more
            self._ranks[rank] = Tail(self._folder.rank_events(rank), below=self._folder.inside)
        for rank in sorted(self._ranks)[1:]:
            events = self._new(rank)
            steps = [event for event in events if event.get("event") == "step"]
            for event in [each for each in events if each.get("event") != "step"] + steps[-1:]:
                yield GangEvent(kind="progress", text=str(event.get("event", "")), data=event)

    def _new(self, rank: int) -> list[dict[str, Any]]:
        events = self._ranks[rank].events()
        skip = min(self._skip.get(rank, 0), len(events))
        if skip:
            self._skip[rank] -= skip
        return events[skip:]
