"""Lines of a container's log as the API server sends them with `timestamps=true`: a time, a space, the text."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from gangline.launch.kubernetes.api.lines import bounded_lines

MAX_LINE_BYTES = 256 * 2**10
_SECOND = len("2026-01-01T00:00:00")


def log_lines(chunks: Iterable[bytes], *, since: str | None) -> Iterator[tuple[str, str]]:
    """(time in UTC with nine digits, text) of each line later than `since`; what is no such line is left out.

    The server's own `sinceTime` counts whole seconds, so a log that is resumed comes with lines that are known.
    """
    known = utc(since) if since is not None else None
    for line in bounded_lines(chunks, max_bytes=MAX_LINE_BYTES):
        if isinstance(line, int):
            continue
        stamp, _, text = line.decode(errors="replace").partition(" ")
        at = utc(stamp)
        if at is not None and (known is None or at > known):
            yield at, text


def utc(stamp: str) -> str | None:
    """An RFC 3339 time as one in UTC with nine digits, so that such times sort as words; None: it is none."""
    digits, zone = _fraction_and_zone(stamp[_SECOND:])
    try:
        seconds = datetime.fromisoformat(stamp[:_SECOND] + zone)
    except ValueError:
        return None
    if seconds.tzinfo is None:
        return None
    return f"{seconds.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{digits[:9]:0<9}Z"


def _fraction_and_zone(rest: str) -> tuple[str, str]:
    if not rest.startswith("."):
        return "", rest
    digits = rest[1:]
    zone = digits.lstrip("0123456789")
    return digits[: len(digits) - len(zone)], zone
