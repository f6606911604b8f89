"""What a gang adds to its run's record whether it did its work or failed: the time that it held."""

from dataclasses import replace

from gangline.line import ledger
from gangline.line.context import StageResult
from gangline.line.gangs import Finished
from gangline.line.ledger import Share
from gangline.spec.measured import Ledger
from gangline.spec.record import Record


def with_shares(record: Record, finished: Finished) -> Ledger:
    """The run's ledger with another stage's gangs in it."""
    standing = [Share(record.ledger.allocated_seconds, record.ledger.seconds)] if record.ledger else []
    return ledger.merge(finished.plan.device, [*standing, *finished.shares])


def failed(key: str, finished: Finished) -> StageResult:
    """The stage of a gang that failed: its error, and the time it took."""
    return StageResult(
        state="failed",
        message=finished.end.reason,
        key=key,
        change=lambda record: replace(record, ledger=with_shares(record, finished)),
        error=finished.error,
    )
