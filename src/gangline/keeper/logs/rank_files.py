"""Files of ranks as their keeper reads them: last ledger, reason of the exit, last lines of a log."""

from pathlib import Path
from typing import Any

from gangline.spec.gang.status import read_event

_TAIL_BYTES = 1 << 16


def last_ledger(path: Path, generation: int) -> dict[str, Any] | None:
    """Last `ledger` event of this generation in a rank's events; None: there is none."""
    return _last(path, "ledger", generation)


def exit_reason(path: Path, generation: int) -> str:
    """What a rank of this generation said it ended of; empty: it could not say, or it is a plain program."""
    event = _last(path, "done", generation)
    return str(event.get("reason") or "") if event else ""


def last_lines(path: Path, count: int = 10) -> list[str]:
    return _tail(path, _TAIL_BYTES).splitlines()[-count:]


def _last(path: Path, name: str, generation: int) -> dict[str, Any] | None:
    for line in reversed(_tail(path, _TAIL_BYTES * 4).splitlines()):
        if f'"{name}"' not in line:
            continue
        event = read_event(line)
        if event is not None and event.get("event") == name and event.get("generation") == generation:
            return event
    return None


def _tail(path: Path, size: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - size))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
