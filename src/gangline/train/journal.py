"""Files in which a keeper speaks: status by rename, events by line, the end once and last. Layout in `spec.gang`.

In a pod it says the same aloud, and leaves its end where the platform keeps it.
"""

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gangline.spec.codec import canonical
from gangline.spec.gang import GangEnd, KeeperStatus
from gangline.train.saying import Speaker


class Journal:
    """Of one keeper."""

    def __init__(self, home: Path, node_rank: int, *, speaker: Speaker | None = None) -> None:
        """`speaker`: of a pod."""
        self._speaker = speaker
        self._status_path = home / f"keeper-{node_rank}.json"
        self._end_path = home / f"exit-{node_rank}.json"
        self._events = (home / f"keeper-{node_rank}.jsonl").open("a", buffering=1)
        self._last: KeeperStatus | None = None

    def status(self, status: KeeperStatus) -> None:
        """Write `status` where it changed."""
        if status != self._last:
            replace(self._status_path, canonical(status), durable=False)
            self._last = status
            if self._speaker is not None:
                self._speaker.status(status)

    def event(self, event: str, **values: Any) -> None:
        line = {"event": event, "mono": time.monotonic(), "time": utc_now(), **values}
        self._events.write(json.dumps(line, separators=(",", ":")) + "\n")
        if self._speaker is not None:
            self._speaker.event(line)

    def end(self, end: GangEnd) -> None:
        """The last word; durable when it returns."""
        self._events.close()
        replace(self._end_path, canonical(end), durable=True)


def replace(path: Path, data: bytes, *, durable: bool) -> None:
    """Put `data` at `path` by rename, so that a reader sees the old or the new whole."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    draft.replace(path)
    if durable:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
