"""Requests to stop a keeper: by signal, with or without `cancel.json`, or by the deadline of the gang."""

import json
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import SIGTERM_CODE, CancelledError, TrainingError

CANCEL_FILE = "cancel.json"
"""`{"reason": text, "save": bool}`, written before the signal when a gang is cancelled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StopRequest:
    """Request to end a generation on purpose."""

    exit_code: int
    reason: str
    save: bool
    """Ranks are asked to save within the grace period; otherwise they are killed at once."""
    resize: bool = False
    """A generation of another size follows."""


class StopSignals:
    """Turns SIGTERM and SIGINT into a request that the keeper's loop reads."""

    def __init__(self, home: Path, *, began: float, deadline_seconds: float | None, deadline_key: str) -> None:
        """
        Args:
            home: Folder of the gang.
            began: Monotonic time at which the gang began.
            deadline_seconds: Time that it has; None: as long as it takes.
            deadline_key: Key of a file that gives this time.
        """
        self._home = home
        self._deadline = None if deadline_seconds is None else began + deadline_seconds
        self._seconds = deadline_seconds
        self._key = deadline_key
        self._signalled = False
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, self._on_signal)

    def request(self, now: float) -> StopRequest | None:
        """Request by a signal or by the deadline; `now` in seconds of the monotonic clock. None: there is none."""
        if self._signalled:
            return self._read_request()
        if self._deadline is not None and now > self._deadline:
            reason = f"deadline of {self._seconds:g} s exceeded; raise {self._key}"
            return StopRequest(exit_code=TrainingError.exit_code, reason=reason, save=True)
        return None

    def _on_signal(self, *_: object) -> None:
        self._signalled = True

    def _read_request(self) -> StopRequest:
        with suppress(FileNotFoundError, ValueError):
            cancel = json.loads((self._home / CANCEL_FILE).read_bytes())
            reason = f"cancelled: {cancel['reason']}"
            return StopRequest(exit_code=CancelledError.exit_code, reason=reason, save=bool(cancel["save"]))
        return StopRequest(exit_code=SIGTERM_CODE, reason="asked to stop by SIGTERM", save=True)
