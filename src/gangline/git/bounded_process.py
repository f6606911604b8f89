"""A child process with limits on time, answer, memory and written files, for commands that read untrusted data.

The answer is read piece by piece up to a limit. The process and all its children are killed once a limit or the time
is spent, or the caller cancels. Callers choose command and settings.
"""

import contextlib
import errno
import os
import resource
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gangline.errors import ConfigError, GanglineError
from gangline.units import format_bytes

MOST_BYTES = 256 << 20
MOST_STDERR_BYTES = 64 << 10
"""Bytes of standard error that are kept; the rest is dropped."""
PIECE_BYTES = 1 << 18
END_SECONDS = 1.0
"""Time from being asked to end to being killed."""
LOOK_SECONDS = 0.1
"""Time between two checks of the clock and of `is_over`."""


class OutputTooLarge(ConfigError):
    """A process wrote more, or a commit holds more, than its limit allows."""


class ProcessTimeout(GanglineError):
    """The process did not end within its time limit."""


class ProcessStopped(GanglineError):
    """The caller cancelled the process (`ProcessLimits.is_over`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessLimits:
    """What one process may take."""

    seconds: float
    most_bytes: int = MOST_BYTES
    """Limit of its answer."""
    memory_bytes: int | None = None
    """Limit of its data, and of those of each process that it starts, where the kernel counts that."""
    cpu_seconds: int | None = None
    """Processor seconds of it, and of each process that it starts."""
    file_bytes: int | None = None
    """Limit of each file that it writes."""
    is_over: Callable[[], bool] = lambda: False
    """Called every `LOOK_SECONDS`; once it returns True, the process is killed."""


@dataclass(slots=True)
class ProcessResult:
    """How a process ended, once its answer was read to the end."""

    code: int = 0
    stderr: bytes = b""


def run_bounded(
    command: Sequence[str], *, name: str, folder: Path, environ: Mapping[str, str], bounds: ProcessLimits
) -> "subprocess.CompletedProcess[bytes]":
    """Run to the end and return the output; `name` is what messages call the process.

    Raises:
        OutputTooLarge: It was longer than `bounds.most_bytes`.
        ProcessTimeout: It took longer than `bounds.seconds`.
        ProcessStopped: `bounds.is_over`.
    """
    ended, answer = ProcessResult(), bytearray()
    with contextlib.closing(
        stream_bounded(command, name=name, folder=folder, environ=environ, bounds=bounds, ended=ended)
    ) as pieces:
        for piece in pieces:
            answer += piece
            if len(answer) > bounds.most_bytes:
                raise OutputTooLarge(f"{name} wrote more than {format_bytes(bounds.most_bytes)} in {folder}")
    return subprocess.CompletedProcess(list(command), ended.code, bytes(answer), ended.stderr)


def stream_bounded(
    command: Sequence[str],
    *,
    name: str,
    folder: Path,
    environ: Mapping[str, str],
    bounds: ProcessLimits,
    ended: ProcessResult,
    stdin: IO[bytes] | None = None,
) -> Generator[bytes]:
    """Standard output piece by piece; `ended` is filled in after the last one. Closing the generator kills the process.

    Raises:
        ProcessTimeout, ProcessStopped: As `run_bounded`.
        FileNotFoundError: There is no such program.
    """
    if shutil.which(command[0], path=environ.get("PATH")) is None:  # the shell would say so with a code of its own
        raise FileNotFoundError(errno.ENOENT, "there is no such program", command[0])
    process = subprocess.Popen(
        _limited(command, bounds), cwd=folder, env=dict(environ), stdin=stdin or subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        yield from _pieces(process, name, folder, bounds, ended)
        ended.code = process.wait()
    finally:
        _end(process)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def _pieces(
    process: "subprocess.Popen[bytes]", name: str, folder: Path, bounds: ProcessLimits, ended: ProcessResult
) -> Iterator[bytes]:
    assert process.stdout is not None
    assert process.stderr is not None
    deadline = time.monotonic() + bounds.seconds
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        waiting.register(process.stderr, selectors.EVENT_READ)
        while waiting.get_map():
            for key, _ in waiting.select(LOOK_SECONDS):
                piece = os.read(key.fd, PIECE_BYTES)
                if not piece:
                    waiting.unregister(key.fileobj)
                elif key.fileobj is process.stdout:
                    yield piece
                else:
                    ended.stderr = (ended.stderr + piece)[:MOST_STDERR_BYTES]
            if bounds.is_over():
                raise ProcessStopped(f"{name} was stopped in {folder}")
            if time.monotonic() > deadline:
                raise ProcessTimeout(f"{name} took longer than {bounds.seconds:.0f} s in {folder}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """SIGTERM first: a process may have started others in groups of their own, and ends them then."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, kind)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)


def _limited(command: Sequence[str], bounds: ProcessLimits) -> list[str]:
    """The command behind a shell that sets its limits and then becomes it: a process that is limited from outside, once
    it runs, may have done its work by then, or started others. Spent processor time is SIGXCPU."""
    wanted = (
        (resource.RLIMIT_DATA, bounds.memory_bytes, 1024, "ulimit -d {0}"),
        (resource.RLIMIT_FSIZE, bounds.file_bytes, 512, "ulimit -f {0}"),
        (resource.RLIMIT_CPU, bounds.cpu_seconds, 1, "ulimit -t {1} && ulimit -S -t {0}"),
    )
    words = []
    for kind, size, unit, text in wanted:
        _, hard = resource.getrlimit(kind)
        if size is not None and (hard == resource.RLIM_INFINITY or size < hard):
            words.append(text.format(size // unit, size // unit + 1))
    return ["/bin/sh", "-c", " && ".join([*words, 'exec "$@"']), "sh", *command] if words else list(command)
