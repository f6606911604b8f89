"""When a run was made and when it ended, as numbers."""

from datetime import datetime

from gangline.spec.record import Record


def ended_at(record: Record) -> float:
    """Seconds since the epoch at which the last stage of the run ended, else when it was made."""
    times = [info.ended for info in record.stages.values() if info.ended]
    return datetime.fromisoformat(max(times, default=record.run.created)).timestamp()


def made_at(record: Record) -> float:
    """Seconds since the epoch at which the run was born."""
    return datetime.fromisoformat(record.run.created).timestamp()
