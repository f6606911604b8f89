"""Retry policy of orders: the state of an order after its driver exited or an attempt failed. Pure.

One exit code, one meaning: 20 waits for capacity (or for an approval), 40 and crashes are retried with growing delays
and then quarantined, everything else is a result.
"""

from dataclasses import replace

from gangline.errors import CapacityError, StillRunning, StorageError, error_for
from gangline.line.request.trust import awaits_approval
from gangline.report.facts import verdict_reason, verdict_text
from gangline.serve.database.types import Order
from gangline.spec.record import Record

RETRY_SECONDS = (10.0, 60.0, 300.0, 1800.0)
"""Pauses before the second, third, ... try; a forge or store may be away for half an hour."""
MOST_TRIES = len(RETRY_SECONDS) + 1
_WAITS = {CapacityError.exit_code: 60.0, StillRunning.exit_code: 5.0}
"""Seconds until the next try."""
UNTIL_WOKEN = 10 * 365 * 86_400.0
_BROKE = 1
"""Exit code of a program that has a bug."""


def after_exit(order: Order, code: int, *, record: Record | None, last_message: str, now: float) -> Order:
    """The order after its driver ended with `code` and left the run open, or created no run.

    Args:
        order: As it was driven.
        code: Exit code; negative for a signal.
        record: As it is then, where there is one.
        last_message: What the driver said last.
        now: Seconds since the epoch.
    """
    if code == CapacityError.exit_code and record is not None and awaits_approval(record):
        return _parked(order, now + UNTIL_WOKEN, f"a fork: waits for gangline approve {record.run.id}")
    if code in _WAITS:
        return _parked(order, now + _WAITS[code], last_message or "no room now")
    if code in {_BROKE, StorageError.exit_code} or not 0 <= code <= 128:
        return after_failure(order, last_message or f"its driver ended with {code}", now=now)
    return replace(order, state="done", note=last_message or (f"{error_for(code).__name__} ({code})" if code else ""))


def after_run(order: Order, record: Record) -> Order:
    """The order of a run that has ended."""
    return replace(
        order, state="done", run=record.run.id, commit=record.commit.sha,
        note=f"{verdict_text(record)}: {verdict_reason(record)}",
    )  # fmt: skip


def after_failure(order: Order, last_message: str, *, now: float) -> Order:
    """Tried again later; put aside after the last try, where it delays no other order."""
    tries = order.tries + 1
    if tries >= MOST_TRIES:
        note = f"failed {tries} times, the last time: {last_message}"
        return replace(order, state="quarantined", tries=tries, note=note)
    return replace(_parked(order, now + RETRY_SECONDS[tries - 1], last_message), tries=tries)


def _parked(order: Order, not_before: float, note: str) -> Order:
    return replace(order, state="parked", not_before=not_before, note=note)
