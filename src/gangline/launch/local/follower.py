"""Events and logs of a local gang from its files.

Events are every one of rank 0, and the latest step of others once a second. A rank's log is read from both its halves,
with a line in the place of what is gone.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gangline.launch.local.folder import GangFolder
from gangline.launch.protocol import GangEvent, GangStatus
from gangline.spec.gang.log_halves import gone_line, older_from, older_half
from gangline.spec.gang.rank_events import is_usable
from gangline.spec.gang.status import read_event
from gangline.storage.folder.safe_paths import read_below


class Tail:
    """Reads new lines of a growing file; an incomplete last line is read later."""

    def __init__(self, path: Path, *, below: Path | None = None) -> None:
        """`below`: folder below which no link is followed; None: the folder of `path`."""
        self._path, self._below = path, below or path.parent
        self._offset = 0

    def lines(self) -> list[str]:
        """Lines since the last call."""
        try:
            if self._path.lstat().st_size < self._offset:  # the file was replaced
                self._offset = 0
        except FileNotFoundError:
            return []
        data = read_below(self._below, self._path, start=self._offset) or b""
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.decode(errors="replace").splitlines()

    def events(self) -> list[dict[str, Any]]:
        """New lines that are JSON objects; an incomplete line of a killed process is left out."""
        return [event for event in map(read_event, self.lines()) if event is not None]


POLL_SECONDS = 0.1
_OTHERS_SECONDS = 1.0
GONE_SECONDS = 10.0
"""Time after which a missing folder counts as deleted; a network folder may be absent for a moment."""


class LocalFollower:
    """Follows one gang to its end."""

    def __init__(self, folder: GangFolder, *, world_size: int, num_nodes: int) -> None:
        self._folder = folder
        self._ranks = {rank: Tail(folder.rank_events(rank), below=folder.inside) for rank in range(world_size)}
        self._keepers = [Tail(folder.keeper_events(node), below=folder.inside) for node in range(num_nodes)]
        self._others_at = 0.0
        self._last: GangStatus | None = None

    def events(self, status: Callable[[], GangStatus]) -> Iterator[GangEvent]:
        """Events until the gang has ended, without the end itself, or until its folder counts as deleted."""
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
            yield from self._keeper_events()
            yield from self._progress(0)
            if ended or time.monotonic() >= self._others_at:
                self._others_at = time.monotonic() + _OTHERS_SECONDS
                yield from self._others()
            if ended:
                return
            time.sleep(POLL_SECONDS)

    def _keeper_events(self) -> Iterator[GangEvent]:
        for tail in self._keepers:
            for event in tail.events():
                kind = {"restart": "restart", "watchdog": "note", "resized": "note"}.get(event.get("event", ""))
                if kind == "restart":
                    yield GangEvent(kind="restart", text=str(event["reason"]), data=event)
                elif kind == "note":
                    yield GangEvent(kind="note", text=str(event["reason"]), data=event)

    def _progress(self, rank: int) -> Iterator[GangEvent]:
        for event in filter(is_usable, self._ranks[rank].events()):
            yield GangEvent(kind="progress", text=str(event.get("event", "")), data=event)

    def _others(self) -> Iterator[GangEvent]:
        """All events but steps, and the latest step."""
        for rank in self._folder.ranks() - self._ranks.keys():  # an elastic gang has got more
            self._ranks[rank] = Tail(self._folder.rank_events(rank), below=self._folder.inside)
        for rank in sorted(self._ranks)[1:]:
            events = [event for event in self._ranks[rank].events() if is_usable(event)]
            steps = [event for event in events if event.get("event") == "step"]
            for event in [each for each in events if each.get("event") != "step"] + steps[-1:]:
                yield GangEvent(kind="progress", text=str(event.get("event", "")), data=event)


class LogTail:
    """Reads new lines of a log; what a rank has begun and not ended is a line once the rank has ended."""

    def __init__(self, log: Path, *, below: Path) -> None:
        """`below`: folder below which no link is followed."""
        self._log, self._below = log, below
        self._older: tuple[int, ...] | None = None
        """What names the content of the older half that was read; None: nothing was read yet."""
        self._position = 0
        self._begin = 0
        """Position of the first byte of the newer half."""
        self._rest = b""

    def lines(self, *, ended: bool) -> list[str]:
        """Lines since the last call; `ended`: nothing more is written."""
        is_first, is_rotated = self._older is None, self._take_older()
        if is_first or ended or not is_rotated:  # else the keeper may not have truncated the newer half yet
            self._take_newer()
        size = len(self._rest) if ended else self._rest.rfind(b"\n") + 1
        whole, self._rest = self._rest[:size], self._rest[size:]
        return whole.decode(errors="replace").splitlines()

    def _take_older(self) -> bool:
        """Take what is new in the older half; False: the log was not rotated since the last call."""
        name = self._name_of_older()
        if name == self._older:
            return False
        self._older = name
        gone, data, self._begin = older_from(read_below(self._below, older_half(self._log)) or b"", self._position)
        self._take(gone, data)
        return bool(name)

    def _name_of_older(self) -> tuple[int, ...]:
        try:
            status = older_half(self._log).lstat()
        except FileNotFoundError:
            return ()
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _take_newer(self) -> None:
        size = self._log.lstat().st_size if self._log.exists() else 0
        if size < self._position - self._begin and self._name_of_older() == self._older:
            self._position = self._begin  # it was read before the keeper truncated it
        data = read_below(self._below, self._log, start=self._position - self._begin)
        self._take(0, data or b"")

    def _take(self, gone: int, data: bytes) -> None:
        if gone:
            self._rest += (b"\n" if self._rest else b"") + gone_line(gone)
        self._rest += data
        self._position += gone + len(data)
