"""Wall time as it stands in records: UTC, ISO 8601, whole milliseconds; for people, never for decisions."""

from datetime import UTC, datetime


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(text: str | None) -> datetime | None:
    """The time that `text` names; None where it names none, as a gang's own words may."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
