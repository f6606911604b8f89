"""Standard output of a keeper's pod, in the format of `spec.gang.pod_output`: logs, events and status.

The keeper's wait loop calls it, so it never blocks: output waits in the files until the reader takes it. Logs are rate
limited: a rank's output above its share per second is left out here, with a note; the file keeps it.
"""

import os
import select
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gangline.keeper.logs.log_files import end_of
from gangline.sanitize import conceal
from gangline.spec.gang.log_halves import older_from, older_half
from gangline.spec.gang.pod_output import MAX_LINE_BYTES, event_line, keeper_line, log_line, status_line
from gangline.spec.gang.status import KeeperStatus, read_event
from gangline.units import format_bytes


class LineTail:
    """Reads the lines that are appended to a file; the file may be replaced, or be a log that is rotated."""

    def __init__(self, path: Path, *, longest: int) -> None:
        """Starts at the current end of `path`; a line of more than `longest` bytes is cut into several."""
        self._path, self._longest = path, longest
        self._offset = self._size()
        self._begin = end_of(older_half(path)) + end_of(path) - self._offset
        """Position in the log of the first byte of the file."""
        self._older = b""
        """Not read yet, and no longer in the file: it was moved to the older half."""

    def lines(self, *, most: int) -> list[str]:
        """Complete lines since the last call, of at most about `most` bytes."""
        self._follow_rotation()
        size = max(most, self._longest)
        data = (self._older + self._read(size))[:size]
        end = data.rfind(b"\n") + 1
        whole = data[: end or (len(data) if len(data) >= self._longest else 0)]
        self._skip(len(whole))
        return [part for line in whole.splitlines() for part in self._cut(line)]

    def skip_to_last(self, most: int) -> int:
        """Skip to the last `most` bytes if more are waiting; returns how many bytes were skipped or are gone."""
        gone = self._follow_rotation()
        left_out = len(self._older) + self._size() - self._offset - max(most, self._longest)
        if left_out <= 0:
            return gone
        self._skip(left_out)
        rest = (self._older + self._read(self._longest))[: self._longest]
        self._skip(cut := len(rest) - len(rest.partition(b"\n")[2]))
        return gone + left_out + cut

    def _follow_rotation(self) -> int:
        """Take what was moved to the older half before it was read; returns how many bytes are gone."""
        older = older_half(self._path)
        if end_of(older) <= self._begin:
            self._offset = self._offset if self._offset <= self._size() else 0  # the file was replaced
            return 0
        gone, unread, self._begin = older_from(older.read_bytes(), self._begin + self._offset)
        self._older, self._offset = self._older + unread, 0
        return gone

    def _read(self, size: int) -> bytes:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                return file.read(size)
        except FileNotFoundError:
            return b""

    def _skip(self, num_bytes: int) -> None:
        of_older = min(num_bytes, len(self._older))
        self._older = self._older[of_older:]
        self._offset += num_bytes - of_older

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
"""Rate of all ranks of a pod together."""
STEP_SECONDS = 1.0
"""Interval at which ranks other than 0 report their last step."""
_MOST_PENDING_BYTES = 256 << 10
"""Length of the queue above which nothing new is read."""
_CHUNK_BYTES = 4096
"""Bytes that a writable pipe takes at once (PIPE_BUF)."""


class PodLog:
    """Output of one keeper and its ranks."""

    def __init__(
        self, node: int, ranks: Iterable[int], *, home: Path, handle: int = 1, secrets: Sequence[str] = ()
    ) -> None:
        """Reports what is written from now on, logs without `secrets`, to the file descriptor `handle`."""
        self._node, self._handle, self._secrets = node, handle, secrets
        self._logs = {rank: LineTail(home / "logs" / f"{rank}.log", longest=MAX_LINE_BYTES) for rank in ranks}
        events = home / "out" / "ranks"
        self._events = {rank: LineTail(events / f"{rank}.jsonl", longest=1 << 20) for rank in self._logs}
        self._steps: dict[int, dict[str, Any]] = {}
        self._steps_at = self._read_at = 0.0
        self._pending: deque[bytes] = deque()
        self._pending_bytes = 0

    def note(self, text: str) -> None:
        self._queue(keeper_line(self._node, text))

    def event(self, event: Mapping[str, Any]) -> None:
        """Write an event of the keeper itself."""
        self._queue(event_line({"keeper": self._node, **event}))

    def status(self, status: KeeperStatus) -> None:
        self._queue(status_line(status))

    def poll(self) -> None:
        """Write new output as far as the reader takes it; never waits."""
        now = time.monotonic()
        if now - self._read_at >= EVERY_SECONDS:
            self._read_new(now, seconds=now - self._read_at)
        self._write()

    def drain(self, seconds: float) -> None:
        """Write all remaining output, for at most `seconds`."""
        deadline = time.monotonic() + seconds
        self._read_new(time.monotonic(), seconds=1.0, last=True)
        while self._pending and time.monotonic() < deadline:
            if not self._write():
                time.sleep(0.01)

    def _read_new(self, now: float, *, seconds: float, last: bool = False) -> None:
        self._read_at = now
        if self._pending_bytes > _MOST_PENDING_BYTES and not last:
            return
        share = int(LOG_BYTES_PER_SECOND * min(seconds, 1.0) / max(1, len(self._logs)))
        for rank, log in self._logs.items():
            if left_out := log.skip_to_last(LOG_BYTES_PER_SECOND // len(self._logs)):
                self.note(f"{format_bytes(left_out)} of rank {rank}'s log are left out here: it prints too fast")
            for line in log.lines(most=max(share, 1)):
                self._queue(log_line(rank, conceal(line, self._secrets)))
        for rank, events in self._events.items():
            for event in filter(None, map(read_event, events.lines(most=1 << 20))):
                self._report(rank, event)
        if last or now - self._steps_at >= STEP_SECONDS:
            self._steps_at = now
            for event in self._steps.values():
                self._queue(event_line(event))
            self._steps.clear()

    def _report(self, rank: int, event: dict[str, Any]) -> None:
        if rank and event.get("event") == "step":
            self._steps[rank] = event
        else:
            self._queue(event_line(event))

    def _queue(self, line: str) -> None:
        data = line.encode(errors="replace") + b"\n"
        self._pending.append(data)
        self._pending_bytes += len(data)

    def _write(self) -> bool:
        """Write from the queue; True: the reader took some of it."""
        poll = select.poll()
        poll.register(self._handle, select.POLLOUT)
        written = False
        while self._pending and poll.poll(0):
            try:
                count = os.write(self._handle, self._pending[0][:_CHUNK_BYTES])
            except OSError:  # the reader is gone
                self._pending.clear()
                self._pending_bytes = 0
                return False
            written = True
            self._pending_bytes -= count
            rest = self._pending[0][count:]
            self._pending.popleft()
            if rest:
                self._pending.appendleft(rest)
        return written
