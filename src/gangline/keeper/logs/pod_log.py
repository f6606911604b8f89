"""Standard output of a keeper's pod, in the form of `spec.pod`: logs, events and status as they are written.

Called from the keeper's wait loop, it never blocks: what a slow reader does not take stays in the files. Logs are
rate limited: what a rank prints beyond its share per second is left out here, with a note; the file keeps it.
"""

import os
import select
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gangline.sanitize import conceal
from gangline.spec.gang.pod_output import MAX_LINE_BYTES, event_line, keeper_line, log_line, status_line
from gangline.spec.gang.status import KeeperStatus, read_event
from gangline.units import format_bytes


class LineTail:
    def __init__(self, path: Path, *, longest: int) -> None:
        """From the end that `path` has now; a line of more than `longest` bytes is cut into several."""
        self._path, self._longest = path, longest
        self._offset = self._size()

    def lines(self, *, most: int) -> list[str]:
        """Whole lines since last asked, of at most about `most` bytes; a torn last line waits for its end."""
        if self._size() < self._offset:
            self._offset = 0
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(max(most, self._longest))
        except FileNotFoundError:
            return []
        end = data.rfind(b"\n") + 1
        whole = data[: end or (len(data) if len(data) >= self._longest else 0)]
        self._offset += len(whole)
        return [part for line in whole.splitlines() for part in self._cut(line)]

    def skip_to_last(self, most: int) -> int:
        """Go on with the last `most` bytes where more are waiting; how many were left out."""
        size = self._size()
        left_out = size - max(most, self._longest) - self._offset
        if left_out <= 0:
            return 0
        with self._path.open("rb") as file:
            file.seek(self._offset + left_out)
            left_out += len(file.readline(self._longest))
        self._offset += left_out
        return left_out

    def _cut(self, line: bytes) -> list[str]:
        parts = range(0, max(len(line), 1), self._longest)
        return [line[start : start + self._longest].decode(errors="replace") for start in parts]

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0


EVERY_SECONDS = 0.2
LOG_BYTES_PER_SECOND = 512 << 10
"""Of all ranks of a pod together."""
STEP_SECONDS = 1.0
"""Of a rank that is not rank 0 the last step of each such while is told."""
_WAITING_BYTES = 256 << 10
"""With more than that unsaid, nothing new is read."""
_CHUNK_BYTES = 4096
"""A pipe that is writable takes so much at once (PIPE_BUF)."""


class PodLog:
    """The voice of one keeper."""

    def __init__(
        self, node: int, ranks: Iterable[int], *, home: Path, handle: int = 1, secrets: Sequence[str] = ()
    ) -> None:
        """Speaks of what is written from now on, logs without `secrets`; `handle`: where to."""
        self._node, self._handle, self._secrets = node, handle, secrets
        self._logs = {rank: LineTail(home / "logs" / f"{rank}.log", longest=MAX_LINE_BYTES) for rank in ranks}
        events = home / "out" / "ranks"
        self._events = {rank: LineTail(events / f"{rank}.jsonl", longest=1 << 20) for rank in self._logs}
        self._steps: dict[int, dict[str, Any]] = {}
        self._steps_at = self._looked = 0.0
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0

    def word(self, text: str) -> None:
        self._say(keeper_line(self._node, text))

    def event(self, event: Mapping[str, Any]) -> None:
        """Of the keeper itself."""
        self._say(event_line({"keeper": self._node, **event}))

    def status(self, status: KeeperStatus) -> None:
        self._say(status_line(status))

    def pump(self) -> None:
        """Say what is new, as far as somebody reads; never waits."""
        now = time.monotonic()
        if now - self._looked >= EVERY_SECONDS:
            self._look(now, seconds=now - self._looked)
        self._write()

    def drain(self, seconds: float) -> None:
        """Say all there is, as long as it is read, for at most so long."""
        patience = time.monotonic() + seconds
        self._look(time.monotonic(), seconds=1.0, last=True)
        while self._waiting and time.monotonic() < patience:
            if not self._write():
                time.sleep(0.01)

    def _look(self, now: float, *, seconds: float, last: bool = False) -> None:
        self._looked = now
        if self._waiting_bytes > _WAITING_BYTES and not last:
            return
        share = int(LOG_BYTES_PER_SECOND * min(seconds, 1.0) / max(1, len(self._logs)))
        for rank, log in self._logs.items():
            if left_out := log.skip_to_last(LOG_BYTES_PER_SECOND // len(self._logs)):
                self.word(f"{format_bytes(left_out)} of rank {rank}'s log are left out here: it prints too fast")
            for line in log.lines(most=max(share, 1)):
                self._say(log_line(rank, conceal(line, self._secrets)))
        for rank, events in self._events.items():
            for event in filter(None, map(read_event, events.lines(most=1 << 20))):
                self._tell(rank, event)
        if last or now - self._steps_at >= STEP_SECONDS:
            self._steps_at = now
            for event in self._steps.values():
                self._say(event_line(event))
            self._steps.clear()

    def _tell(self, rank: int, event: dict[str, Any]) -> None:
        if rank and event.get("event") == "step":
            self._steps[rank] = event
        else:
            self._say(event_line(event))

    def _say(self, line: str) -> None:
        data = line.encode(errors="replace") + b"\n"
        self._waiting.append(data)
        self._waiting_bytes += len(data)

    def _write(self) -> bool:
        """Some was taken."""
        poll = select.poll()
        poll.register(self._handle, select.POLLOUT)
        written = False
        while self._waiting and poll.poll(0):
            try:
                count = os.write(self._handle, self._waiting[0][:_CHUNK_BYTES])
            except OSError:  # nobody will ever read this
                self._waiting.clear()
                self._waiting_bytes = 0
                return False
            written = True
            self._waiting_bytes -= count
            rest = self._waiting[0][count:]
            self._waiting.popleft()
            if rest:
                self._waiting.appendleft(rest)
        return written
