"""Event log of a rank: one JSON object a line, in the form that `spec.gang` and the line read; its Prometheus exporter.

Events of steps may be buffered briefly; all others are written at once, together with those before them.
"""

import json
import math
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gangline.keeper.ipc.environment import RankEnvironment
from gangline.keeper.ipc.gang_inputs import secret_values
from gangline.sanitize import conceal
from gangline.spec.plan import Plan

FLUSH_SECONDS = 1.0


FLUSH_LINES = 10


_ENCODER = json.JSONEncoder(allow_nan=False)


class LineFile:
    """Appends JSON lines to a file, flushed every second or ten lines; flushed lines survive the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self._lines: list[str] = []
        self._flushed = time.monotonic()
        self._lock = threading.Lock()

    def add(self, entry: dict[str, Any], *, now: bool = False) -> None:
        """Add one line; `now` flushes it. Numbers that are not finite become null, because JSON has none."""
        with self._lock:
            self._lines.append(to_json(entry))
            if now or len(self._lines) >= FLUSH_LINES or time.monotonic() - self._flushed >= FLUSH_SECONDS:
                self._write()

    def flush(self) -> None:
        """Write all buffered lines in one call."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        if self._lines:
            self._file.write(("\n".join(self._lines) + "\n").encode())
        self._lines.clear()
        self._flushed = time.monotonic()

    def close(self) -> None:
        self.flush()
        self._file.close()


def to_json(entry: dict[str, Any]) -> str:
    """One line of JSON; numbers that are not finite become null."""
    try:
        return _ENCODER.encode(entry)
    except ValueError:
        return _ENCODER.encode(_finite(entry))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


_STEP = re.compile(rb'\{"event": "(?:step|round)", "rank": \d+, "generation": \d+, "step": (\d+),')
"""Step events as `emit` writes them; the last line of a killed rank may be incomplete."""
Listener = Callable[[dict[str, Any]], None]


class EventLog:
    """Events of a rank: to its file, and to listeners."""

    def __init__(self, path: Path | None, *, rank: int, generation: int) -> None:
        """Open the file; a program outside a gang has no `path`, and its events reach listeners only."""
        self._file = LineFile(path) if path is not None else None
        self._head = {"rank": rank, "generation": generation}
        self.listeners: list[Listener] = []

    def emit(self, event: str, *, step: int | None = None, **fields: Any) -> None:
        """Write an event at once, with rank, generation and both clocks; secrets in `reason` are concealed."""
        if isinstance(reason := fields.get("reason"), str):  # it may quote secrets that the program was given
            fields["reason"] = conceal(reason, secret_values(os.environ))
        entry = {"event": event, **self._head, "step": step, "mono": time.monotonic(), "time": time.time(), **fields}
        for listener in self.listeners:
            listener(entry)
        if self._file is not None:
            self._file.add(entry, now=event != "step")

    def next_generation(self, number: int) -> None:
        """This process continues in another generation."""
        self._head["generation"] = number

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def last_step(path: Path) -> int:
    """Last step that earlier generations of this rank finished, by its events; 0 if none."""
    if not path.exists():
        return 0
    with path.open("rb") as lines:  # a long run has millions: they are not parsed, and few are in memory
        matches = (_STEP.match(line) for line in lines)
        return max((int(match[1]) for match in matches if match), default=0)


def serve_metrics(environment: RankEnvironment, plan: Plan, events: EventLog) -> None:
    """Serve this rank's metrics on the launcher's port, if it gave one; a port in use is an event, not a failure."""
    if environment.metrics_port is None:
        return
    from gangline.metrics.exporter import RankExporter

    port = environment.metrics_port + environment.local_rank
    exporter = RankExporter(
        environment.run,
        environment.rank,
        port,
        world_size=plan.world_size,
        steps=plan.steps,
        trains=plan.role == "train" and not plan.worker,  # the servers report the training of a run with workers
        host="127.0.0.1" if environment.on_loopback else "0.0.0.0",  # noqa: S104  # of a pod, behind its network policy
    )
    if exporter.problem is not None:
        events.emit("metrics_not_served", port=port, reason=exporter.problem)
    else:
        events.listeners.append(exporter.observe)
