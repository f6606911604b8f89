"""Parsers of streamed responses: watch events and log lines, from chunks of any size.

With `timestamps=true` a log line is a time, a space and the text. A malformed watch event is
left out and counted.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Literal

from gangline.launch.kubernetes.client.api import ApiExpired, ApiUnavailable, Object, WatchEvent

_TooLong = int


def bounded_lines(chunks: Iterable[bytes], *, max_bytes: int) -> Iterator[bytes | _TooLong]:
    """Each line without its newline; only the length of one over `max_bytes`. The last line may lack a newline."""
    held = bytearray()
    skipped = 0
    for chunk in chunks:
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            size = skipped + len(held) + len(piece)
            yield size if size > max_bytes else bytes(held + piece)
            held.clear()
            skipped = 0
        held += rest
        if len(held) > max_bytes:
            skipped += len(held)
            held.clear()
    if held or skipped:
        yield skipped + len(held) if skipped else bytes(held)


MAX_EVENT_BYTES = 4 * 2**20
_MAX_DEPTH = 64
_KINDS: dict[str, Literal["added", "modified", "deleted", "bookmark"]] = {
    "ADDED": "added",
    "MODIFIED": "modified",
    "DELETED": "deleted",
    "BOOKMARK": "bookmark",
}


class _MalformedEvent(Exception):
    """The line is not a usable event; the text says why."""


def watch_events(chunks: Iterable[bytes], *, set_aside: Callable[[str], None]) -> Iterator[WatchEvent]:
    """Events in order of arrival; `set_aside` is called per malformed line. Raises `ApiExpired`, `ApiUnavailable`."""
    for line in bounded_lines(chunks, max_bytes=MAX_EVENT_BYTES):
        if line == b"":
            continue
        try:
            yield _event(line)
        except _MalformedEvent as why:
            set_aside(str(why))


def is_well_formed(body: Any) -> bool:
    """Whether `body` has the types on which callers rely: names, versions, labels are strings, nesting is bounded."""
    if not isinstance(body, dict) or not isinstance(metadata := body.get("metadata"), dict):
        return False
    words = all(isinstance(metadata.get(each, ""), str) for each in ("name", "namespace", "uid", "resourceVersion"))
    maps = all(_is_words(metadata.get(each)) for each in ("labels", "annotations"))
    parts = all(isinstance(body.get(each, {}), dict) for each in ("spec", "status"))
    return words and maps and parts and not _is_deep(body)


def _event(line: bytes | int) -> WatchEvent:
    if isinstance(line, int):
        raise _MalformedEvent(f"a line of {line} bytes, more than {MAX_EVENT_BYTES}")
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _MalformedEvent(f"no JSON: {type(error).__name__}") from error
    kind, body = (raw.get("type"), raw.get("object")) if isinstance(raw, dict) else (None, None)
    if kind == "ERROR":
        _raise_error(body if isinstance(body, dict) else {})
    if not isinstance(kind, str) or kind not in _KINDS or not is_well_formed(body):
        raise _MalformedEvent(f"no event: {line[:80]!r}")
    assert isinstance(body, dict)
    return WatchEvent(kind=_KINDS[kind], object=body)


def _raise_error(status: Object) -> None:
    text = str(status.get("message", "no message"))[:500]
    if status.get("code") == 410 or status.get("reason") == "Expired":
        raise ApiExpired(f"watch: {text}; list again")
    raise ApiUnavailable(f"watch: the API server ended it: {text}")


def _is_words(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())


def _is_deep(body: Object) -> bool:
    layer: list[Any] = [body]
    for _ in range(_MAX_DEPTH):
        below: list[Any] = []
        for each in layer:
            below += each.values() if isinstance(each, dict) else each
        layer = [each for each in below if isinstance(each, (dict, list))]
        if not layer:
            return False
    return True


MAX_LOG_LINE_BYTES = 256 * 2**10
_SECOND = len("2026-01-01T00:00:00")


def log_lines(chunks: Iterable[bytes], *, since: str | None) -> Iterator[tuple[str, str]]:
    """(time in UTC with nine digits, text) of each line later than `since`; other lines are left out.

    The server's `sinceTime` counts whole seconds, so a resumed log repeats lines, which are dropped here.
    """
    known = utc(since) if since is not None else None
    for line in bounded_lines(chunks, max_bytes=MAX_LOG_LINE_BYTES):
        if isinstance(line, int):
            continue
        stamp, _, text = line.decode(errors="replace").partition(" ")
        at = utc(stamp)
        if at is not None and (known is None or at > known):
            yield at, text


def utc(stamp: str) -> str | None:
    """An RFC 3339 time in UTC with nine digits, so that times sort as strings; None: `stamp` is not a time."""
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
