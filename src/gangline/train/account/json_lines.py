"""Buffered JSON lines in a file: they wait for a second or ten lines, then go out in one write."""

import json
import math
import time
from pathlib import Path
from typing import Any

FLUSH_SECONDS = 1.0
FLUSH_LINES = 10
_ENCODER = json.JSONEncoder(allow_nan=False)


class LineFile:
    """Appends; what is flushed outlives the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self._lines: list[str] = []
        self._flushed = time.monotonic()

    def add(self, entry: dict[str, Any], *, now: bool = False) -> None:
        """Add one line, `now` with all that wait; numbers that are not finite become null, for JSON has none."""
        self._lines.append(to_json(entry))
        if now or len(self._lines) >= FLUSH_LINES or time.monotonic() - self._flushed >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        if self._lines:
            self._file.write(("\n".join(self._lines) + "\n").encode())
        self._lines.clear()
        self._flushed = time.monotonic()

    def close(self) -> None:
        self.flush()
        self._file.close()


def to_json(entry: dict[str, Any]) -> str:
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
