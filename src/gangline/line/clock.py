"""Wall time as it stands in records: UTC, ISO 8601, whole milliseconds; for people, never for decisions."""

from datetime import UTC, datetime


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
