"""Sanitizing of untrusted text: removes control sequences and invisible characters, and conceals secrets."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

Document = TypeVar("Document")
CONTROL_CHARACTERS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, but tab and newline
    "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # direction, ends of lines, no width
    "\xad\u180e\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff"  # invisible
    "\ud800-\udfff\ufffe\uffff"  # no characters
)
"""Set of a regular expression."""

_SEQUENCE = (
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"  # of a terminal: colours, cursor, screen
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]{0,400}(?:\x07|\x1b\\\\|\x9c)"  # title, clipboard, links
)
_INVISIBLE = re.compile(f"{_SEQUENCE}|[{CONTROL_CHARACTERS}]")
_ESCAPED = re.compile(f"[{CONTROL_CHARACTERS}]")


CONCEALED = "***"
"""Text in place of a secret."""
_LEAST_CHARACTERS = 4
"""A shorter value would take letters out of words."""


def concealable(values: Iterable[str]) -> tuple[str, ...]:
    """Secret values that can be taken out of a text, longest first: one may be part of another."""
    return tuple(sorted({value for value in values if len(value) >= _LEAST_CHARACTERS}, key=len, reverse=True))


def conceal(text: str, values: Iterable[str]) -> str:
    """`text` without `values`, where they occur literally."""
    for value in values:
        text = text.replace(value, CONCEALED)
    return text


def visible(text: str) -> str:
    """`text` without what steers; tabs and newlines stay."""
    return text if text.isprintable() else _INVISIBLE.sub("", text)


def one_line(text: str) -> str:
    """`visible`, on one line without doubled blanks."""
    return " ".join(visible(text).split())


def sanitized(document: Document) -> Document:
    """A document (dataclasses, dicts, tuples, lists) each text of which is one visible line; itself where all are."""
    made: Any = _one_lined(document)
    return made  # type: ignore[no-any-return]  # of the same class


def to_json(value: Any, *, indent: int | None = None) -> str:
    """JSON of plain data that may be printed: what is invisible is escaped, other letters are not."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, indent=indent, default=str)
    return _ESCAPED.sub(lambda match: json.dumps(match[0])[1:-1], text)


def _one_lined(value: Any) -> Any:
    if isinstance(value, str):
        line = one_line(value)
        return value if line == value else line
    if isinstance(value, Mapping):
        made = {_one_lined(key): _one_lined(each) for key, each in value.items()}
        return value if made == value else made
    if type(value) in (tuple, list):
        several = type(value)(map(_one_lined, value))
        return value if several == value else several
    if is_dataclass(value) and not isinstance(value, type):
        changed = {
            field.name: new
            for field in fields(value)
            if (new := _one_lined(old := getattr(value, field.name))) is not old
        }
        return replace(value, **changed) if changed else value
    return value


_STEERING = re.compile(f"[\t\n{CONTROL_CHARACTERS}]+")
"""What steers a terminal, reorders, hides or breaks lines."""
_BLANK = re.compile(
    "[\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u206a-\u206f\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufffb"
    "\U000e0000-\U000e0fff]"
)
"""What shows nothing, or only with the character before it: letters, marks and tags that fonts leave blank."""
_NAME_LENGTH = 1000


def clean(text: str, *, limit: int) -> str:
    """`text` as one harmless line: no control, direction or zero-width characters, at most `limit` long."""
    return _STEERING.sub(" ", text).strip()[:limit]


def shown_name(branch: str) -> str | None:
    """The name of a branch, where it is what people see; None where it is not.

    `main` with an invisible character in it is a branch that others may push to: it never passes for `main`.
    """
    is_shown = clean(branch, limit=_NAME_LENGTH) == branch and not _BLANK.search(branch)
    return branch if branch and is_shown else None
