"""What a rank says about itself: one JSON object a line, in order, as `spec.gang` and the line read it.

Events of steps may wait a moment, all others go out at once, with those before them.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gangline.train.loop.lines import LineFile

Listener = Callable[[dict[str, Any]], None]


class EventLog:
    def __init__(self, path: Path | None, *, rank: int, generation: int) -> None:
        """Without `path` events reach listeners only: a program at a desk has no gang."""
        self._file = LineFile(path) if path is not None else None
        self._head = {"rank": rank, "generation": generation}
        self.listeners: list[Listener] = []

    def emit(self, event: str, *, step: int | None = None, **fields: Any) -> None:
        entry = {"event": event, **self._head, "step": step, "mono": time.monotonic(), "time": time.time(), **fields}
        for listener in self.listeners:
            listener(entry)
        if self._file is not None:
            self._file.add(entry, now=event != "step")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def last_step(path: Path) -> int:
    """Last step that earlier generations of this rank finished, by its events; 0: none."""
    if not path.exists():
        return 0
    steps = [0]
    for line in path.read_bytes().splitlines():
        if line.startswith(b'{"event": "step"'):
            try:
                steps.append(json.loads(line)["step"])
            except ValueError:
                continue  # the line that its rank was killed in
    return max(steps)
