"""Readers of /proc on Linux: the state, children, namespaces and environment of processes."""

import os
import platform
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_MOST_COMMAND_BYTES = 4096


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of `pid`: with the pid it names one process for ever. None: it is gone."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def state(pid: int) -> str | None:
    """`R` running, `S` asleep, `D` in the kernel, `T` stopped, `Z` dead and unburied; None: gone."""
    fields = _stat(pid)
    return fields[0] if fields else None


def is_alive(pid: int, started: int) -> bool:
    """The process that had `pid` since `started` still runs."""
    fields = _stat(pid)
    return bool(fields) and int(fields[19]) == started and fields[0] != "Z"


def name(pid: int) -> str:
    """First 15 characters of the file name of the program that `pid` runs or ran; empty: it is gone."""
    return _read(_PROC / str(pid) / "comm").strip()


def waited_for_children(pid: int) -> bool:
    """`pid`, which may have ended, has waited for a process: page faults of those count for it."""
    fields = _stat(pid)
    return bool(fields) and int(fields[8]) > 0


def children(pid: int) -> list[int]:
    """Direct children, of every thread."""
    found: list[int] = []
    for task in _list(_PROC / str(pid) / "task"):
        found += map(int, _read(_PROC / str(pid) / "task" / task / "children").split())
    return found


def pids(pid: int) -> list[int]:
    """What a process is called in each namespace that it is in, from this one inward; empty: it is gone."""
    for line in _read(_PROC / str(pid) / "status").splitlines():
        if line.startswith("NSpid:"):
            return [int(part) for part in line.split()[1:]]
    return []


def pid_here(inner: int, *, below: int) -> int | None:
    """What the process is called here that `below`, or a descendant of it, calls `inner`; None: it is gone."""
    level = len(pids(below))
    for pid in descendants(below):
        names = pids(pid)
        if len(names) == level and names[-1] == inner:
            return pid
    return None


def descendants(pid: int) -> Iterator[int]:
    """`pid` and all processes below it."""
    waiting = [pid]
    while waiting:
        yield (each := waiting.pop())
        waiting += children(each)


def num_threads(pid: int) -> int:
    """Threads of a process."""
    return len(_list(_PROC / str(pid) / "task"))


def peak_bytes(pid: int) -> int:
    """Most memory that a process ever had; 0: it is gone."""
    for line in _read(_PROC / str(pid) / "status").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def catches(pid: int, signal: int) -> bool:
    """`pid` has a handler for `signal`, so that it does not die of it."""
    for line in _read(_PROC / str(pid) / "status").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signal - 1) & 1)
    return False


def with_variable(name: str, *values: str) -> Iterator[int]:
    """Processes that were started with `name=value`, for one of `values`, in their environment and that this user may
    look at."""
    wanted = {f"{name}={value}".encode() for value in values}
    for entry in _list(_PROC):
        if entry.isdecimal() and int(entry) != os.getpid() and not wanted.isdisjoint(_environ(int(entry))):
            yield int(entry)


def environ(pid: int) -> dict[str, str]:
    """What `pid` was started with; empty where it is gone or another user's."""
    words = (os.fsdecode(each).partition("=") for each in _environ(pid))
    return {name: value for name, _, value in words if name}


def command(pid: int) -> list[str]:
    """Words that `pid` was started with, or now says that it was, the first 4 KB of them.

    Empty: it is gone, dead or of the kernel.
    """
    if state(pid) in (None, "Z"):
        return []
    try:
        with (_PROC / str(pid) / "cmdline").open("rb") as file:
            words = file.read(_MOST_COMMAND_BYTES).rstrip(b"\0").decode(errors="replace")
    except OSError:
        return []
    return words.split("\0") if words else []


def _environ(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def processor_name() -> str:
    """Name that the system gives the processor; the kind of machine where it has no name."""
    lines = _read(_PROC / "cpuinfo").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _stat(pid: int) -> list[str]:
    """Fields from the third on: the second, the name, may hold blanks and brackets."""
    return _read(_PROC / str(pid) / "stat").rpartition(")")[2].split()


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")  # a process may call itself anything
    except OSError:
        return ""


def _list(path: Path) -> list[str]:
    try:
        return [entry.name for entry in path.iterdir()]
    except OSError:
        return []
