"""Requests to stop a keeper: by signal, with or without `cancel.json`, or by the deadline of the gang."""

import json
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import SIGTERM_CODE, CancelledError, TrainingError

ORDER_FILE = "cancel.json"
"""`{"reason": text, "save": bool}`, written by who cancels before the signal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StopRequest:
    exit_code: int
    reason: str
    save: bool
    """Ranks are asked, and get their grace; else they are killed at once."""
    resize: bool = False
    """They leave for a generation of another size."""


class StopSignals:
    """Turns SIGTERM and SIGINT into an order that the keeper's loop reads."""

    def __init__(self, home: Path, *, deadline: float | None, deadline_seconds: float | None) -> None:
        """`deadline`: monotonic time when the gang's time is over, after `deadline_seconds`."""
        self._home = home
        self._deadline = deadline
        self._seconds = deadline_seconds
        self._asked = False
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, self._ask)

    def order(self, now: float) -> StopRequest | None:
        if self._asked:
            return self._read()
        if self._deadline is not None and now > self._deadline:
            reason = f"the gang's time of {self._seconds:g} s is over; give it a longer plan.deadline_seconds"
            return StopRequest(exit_code=TrainingError.exit_code, reason=reason, save=True)
        return None

    def _ask(self, *_: object) -> None:
        self._asked = True

    def _read(self) -> StopRequest:
        with suppress(FileNotFoundError, ValueError):
            order = json.loads((self._home / ORDER_FILE).read_bytes())
            reason = f"cancelled: {order['reason']}"
            return StopRequest(exit_code=CancelledError.exit_code, reason=reason, save=bool(order["save"]))
        return StopRequest(exit_code=SIGTERM_CODE, reason="asked to stop by SIGTERM", save=True)
