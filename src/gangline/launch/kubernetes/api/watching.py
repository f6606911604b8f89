"""Events of a watch out of its lines. An object that no server of good faith sends is set aside, alone, and counted."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from gangline.launch.kubernetes.api.lines import bounded_lines
from gangline.launch.kubernetes.api.protocol import Away, Gone, Object, WatchEvent

MAX_LINE_BYTES = 4 * 2**20
_MAX_DEPTH = 64
_KINDS: dict[str, Literal["added", "modified", "deleted", "bookmark"]] = {
    "ADDED": "added",
    "MODIFIED": "modified",
    "DELETED": "deleted",
    "BOOKMARK": "bookmark",
}


class _Hostile(Exception):
    """No event that anybody could act on; the text says why."""


def events(chunks: Iterable[bytes], *, set_aside: Callable[[str], None]) -> Iterator[WatchEvent]:
    """Events in order of arrival; `set_aside` hears of each line that is none. Raises `Gone`, `Away`."""
    for line in bounded_lines(chunks, max_bytes=MAX_LINE_BYTES):
        if line == b"":
            continue
        try:
            yield _event(line)
        except _Hostile as why:
            set_aside(str(why))


def is_sound(body: Any) -> bool:
    """Whether `body` has what every consumer relies on: names and versions are words, labels too, nothing is deep."""
    if not isinstance(body, dict) or not isinstance(metadata := body.get("metadata"), dict):
        return False
    words = all(isinstance(metadata.get(each, ""), str) for each in ("name", "namespace", "uid", "resourceVersion"))
    maps = all(_is_words(metadata.get(each)) for each in ("labels", "annotations"))
    parts = all(isinstance(body.get(each, {}), dict) for each in ("spec", "status"))
    return words and maps and parts and not _is_deep(body)


def _event(line: bytes | int) -> WatchEvent:
    if isinstance(line, int):
        raise _Hostile(f"a line of {line} bytes, more than {MAX_LINE_BYTES}")
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _Hostile(f"no JSON: {type(error).__name__}") from error
    kind, body = (raw.get("type"), raw.get("object")) if isinstance(raw, dict) else (None, None)
    if kind == "ERROR":
        _raise_error(body if isinstance(body, dict) else {})
    if not isinstance(kind, str) or kind not in _KINDS or not is_sound(body):
        raise _Hostile(f"no event: {line[:80]!r}")
    assert isinstance(body, dict)
    return WatchEvent(kind=_KINDS[kind], object=body)


def _raise_error(status: Object) -> None:
    text = str(status.get("message", "no message"))[:500]
    if status.get("code") == 410 or status.get("reason") == "Expired":
        raise Gone(f"watch: {text}; list again")
    raise Away(f"watch: the API server ended it: {text}")


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
