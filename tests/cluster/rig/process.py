"""One process by its id and the moment it started, in a file: an id alone may by now be somebody else's."""

import json
import os
import signal
import time
from pathlib import Path


def write(path: Path, pid: int) -> None:
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    staged.write_text(json.dumps({"pid": pid, "start": started(pid)}))
    staged.replace(path)


def read(path: Path) -> int | None:
    """Its id; None where it has ended, or never was."""
    try:
        reported = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return reported["pid"] if started(reported["pid"]) == reported["start"] else None


def started(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat; None: it has ended."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if words[0] in "ZX" else int(words[19])


def end(path: Path, *, seconds: float) -> None:
    """TERM, and after `seconds` KILL; returns when it is gone."""
    pid = read(path)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + seconds
        while read(path) is not None and time.monotonic() < deadline:
            time.sleep(0.05)
    if read(path) is not None:
        os.kill(pid, signal.SIGKILL)
    while read(path) is not None:
        time.sleep(0.05)
    path.unlink(missing_ok=True)
