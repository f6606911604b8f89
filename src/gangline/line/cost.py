"""What a gang adds to its run's record whether it did its work or failed: the time that it held."""

from dataclasses import replace

from gangline.line import ledger
from gangline.line.context import StageResult
from gangline.line.gangs import Finished
from gangline.line.ledger import Share
from gangline.spec.measured import Ledger
from gangline.spec.record import Record


def with_shares(record: Record, *finished: Finished) -> Ledger | None:
    """The run's ledger with another stage's gangs in it."""
    if not finished:
        return record.ledger
    standing = [Share(record.ledger.allocated_seconds, record.ledger.seconds)] if record.ledger else []
    shares = [share for each in finished for share in each.shares]
    return ledger.merge(finished[0].plan.device, [*standing, *shares])


def failed(key: str, *finished: Finished, who: str = "") -> StageResult:
    """The stage whose last gang failed: its error, and the time of all of them; `who` failed, where that has a name."""
    last = finished[-1]
    named = f"{who}: " if who else ""
    error = type(last.error)(f"{named}{last.error}") if last.error and named else last.error
    return StageResult(
        state="failed",
        message=f"{named}{last.end.reason}",
        key=key,
        change=lambda record: replace(record, ledger=with_shares(record, *finished)),
        error=error,
    )
