"""Heartbeat of a rank: 64 mapped bytes that the rank writes and the watchdog reads. No system call, no torch.

Every field is one aligned word, so a reader never sees half of a value; a rank that is stopped or killed leaves
its last beat in the file. Times are of the monotonic clock, which all processes of a machine share.

A program calls `heartbeat.beat(step)` after `from gangline.train import heartbeat`; outside a gang it does nothing.
With its first beat a process joins: the keeper, which may have started a shell or a launcher, then knows which process
is the rank.
"""

import mmap
import os
import struct
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gangline.keeper.ipc.environment import heartbeat_path
from gangline.keeper.ipc.joined import join, joined_path

_LAYOUT = struct.Struct("=8sqqqdd16s")
_MAGIC = b"gangbeat"
NO_STEP = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Beat:
    """Content of a heartbeat file. Times are seconds of the monotonic clock, which all processes of a node share."""

    pid: int
    step: int
    """Last finished step; NO_STEP before the first report of a step."""
    steps_taken: int
    """Steps finished by this process."""
    mono: float
    """Time of the last beat."""
    expect_until: float
    """Time until which the rank announced silence."""
    phase: str


class HeartbeatWriter:
    """The rank's side. One writer per file; cheap enough to beat at every phase."""

    def __init__(self, path: Path) -> None:
        self._map = _open(path)
        join(path)
        self._step = NO_STEP
        self._steps_taken = 0
        self._until = 0.0
        self._phase = "start"
        self._write()

    def beat(self, step: int | None = None, phase: str | None = None) -> None:
        """Report progress: `step` is the last finished one, `phase` has at most 16 ASCII letters.

        The first `step` of a process is the one it resumed at and is not counted as a step.
        """
        if step is not None and step != self._step:
            self._steps_taken += self._step != NO_STEP
            self._step = step
            self._until = 0.0
        if phase is not None:
            self._phase = phase
        self._write()

    def expect(self, seconds: float) -> None:
        """Announce that the next step may take `seconds` from now; a later time announced before is kept."""
        self._until = max(self._until, time.monotonic() + seconds)
        self._write()

    def close(self) -> None:
        self._map.close()

    def _write(self) -> None:
        phase = self._phase.encode("ascii", "replace")[:16]
        self._map[:] = _LAYOUT.pack(
            _MAGIC, os.getpid(), self._step, self._steps_taken, time.monotonic(), self._until, phase
        )
        sys.audit("gangline.beat")  # a step without any other event would not be watched (`startup.audit`)


class HeartbeatReader:
    """The watchdog's side; creates the file, so that no beat of an earlier generation counts."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        for each in (path, joined_path(path)):
            each.unlink(missing_ok=True)
        self._map = _open(path)

    def read(self) -> Beat | None:
        """Last beat, None before the first."""
        return _parse(self._map[:])

    def close(self) -> None:
        self._map.close()


def peek(path: Path) -> Beat | None:
    """Last beat in the file at `path`, read only; None: there is none yet."""
    try:
        return _parse(path.read_bytes())
    except FileNotFoundError:
        return None


def beat(step: int | None = None, phase: str | None = None) -> None:
    """Beat for this process if a keeper watches it."""
    if writer := _own_writer():
        writer.beat(step, phase)


def expect(seconds: float) -> None:
    """Announce up to `seconds` of silence for this process if a keeper watches it."""
    if writer := _own_writer():
        writer.expect(seconds)


@cache
def _own_writer() -> HeartbeatWriter | None:
    path = heartbeat_path()
    return HeartbeatWriter(path) if path else None


def _open(path: Path) -> mmap.mmap:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(handle, _LAYOUT.size)
        return mmap.mmap(handle, _LAYOUT.size)
    finally:
        os.close(handle)


def _parse(data: bytes) -> Beat | None:
    if len(data) != _LAYOUT.size or not data.startswith(_MAGIC):
        return None
    _, pid, step, steps_taken, mono, until, phase = _LAYOUT.unpack(data)
    return Beat(
        pid=pid,
        step=step,
        steps_taken=steps_taken,
        mono=mono,
        expect_until=until,
        phase=phase.rstrip(b"\0").decode("ascii", "replace"),
    )
