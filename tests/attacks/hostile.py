"""Records whose every text is hostile, and what may be left of them on a surface."""

import re
import types
import unicodedata
from dataclasses import fields, is_dataclass, replace
from html.parser import HTMLParser
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

EVIL = (
    "x` @out #9 ` a\x1b]0;title\x07\x1b]52;c;Y2xpcA==\x1b\\\x1b[31m\x1b[2J\x9b2J\x9d0;t\x9c\x90q\x9c\x1b"
    "\x85\u2028\u202egnp\u2066\u200b\ufeff\x00\x08\x7f b\r\nPASSED  all gates\tc @everyone @team/x #1 !2 "
    "`c` **d** | [e](javascript:f) "
    "<script>g()</script> <img src=x onerror=h> <!-- gangline:bytegpt --> https://evil.example/ {{ 7*7 }} \"'><blink>"
)
CALM = "x a b PASSED all gates c"
_KEPT = {"schema", "created", "time", "project"}
"""Fields whose form is checked when a record is read, or that others sort by."""


def hostile(value: Any, text: str = EVIL, *, hint: Any = str) -> Any:
    """`value` with `text` in place of each text that is none of a few words."""
    if isinstance(value, str):
        return value if _is_word(hint, value) else text
    if isinstance(value, dict):
        inner = (get_args(hint) or (str, Any))[1]
        return {f"{text} {n}" if isinstance(key, str) else key: hostile(each, text, hint=inner)
                for n, (key, each) in enumerate(value.items())}  # fmt: skip
    if isinstance(value, (tuple, list)):
        inner = (get_args(hint) or (Any,))[0]
        return type(value)(hostile(each, text, hint=inner) for each in value)
    if is_dataclass(value):
        return _hostile_fields(value, text)
    return value


def _hostile_fields(value: Any, text: str) -> Any:
    hints = get_type_hints(type(value))
    changed = {}
    for each in fields(value):
        old = getattr(value, each.name)
        if each.name == "links":
            changed["links"] = {f"{name}{text}": f"https://x.example/{text}" for name in old} | {
                "evil": f"javascript:{text}"
            }
        elif each.name == "stages":
            changed["stages"] = {name: hostile(info, text) for name, info in old.items()}
        elif each.name not in _KEPT:
            changed[each.name] = hostile(old, text, hint=hints[each.name])
    return replace(value, **changed)


def _is_word(hint: Any, value: str) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return any(_is_word(each, value) for each in get_args(hint))
    return False


def steering(text: str) -> list[str]:
    """Characters of `text` that a terminal obeys, or that hide or reorder."""
    return sorted({each for each in text if each not in "\n\t" and _steers(each)})


def _steers(char: str) -> bool:
    turns = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    return (
        unicodedata.category(char) in {"Cc", "Zl", "Zp", "Cs"}
        or unicodedata.bidirectional(char) in turns
        or char in "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\u061c\xad"
    )


class Rendered(HTMLParser):
    """What a browser makes of a page: tags, attributes, and text outside of code."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.targets: list[str] = []
        self.texts: list[str] = []
        self.comments: list[str] = []
        self._inside: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.targets += [value or "" for name, value in attrs if name in ("href", "src", "action", "xlink:href")]
        if tag not in ("br", "meta", "link", "input", "img", "hr", "path", "rect"):
            self._inside.append(tag)

    def handle_endtag(self, tag):
        if tag in self._inside:
            while self._inside.pop() != tag:
                pass

    def handle_data(self, data):
        if not {"code", "pre", "style"} & set(self._inside):
            self.texts.append(data)

    def handle_comment(self, data):
        self.comments.append(data)

    @property
    def mentions(self) -> list[str]:
        """Text that a forge takes for a person, an issue or a merge request."""
        return [found for text in self.texts for found in re.findall(r"(?<!\w)@\w\S*|(?<![\w&])[#!]\d+", text)]

    @property
    def escaped_twice(self) -> list[str]:
        return [found for text in self.texts for found in re.findall(r"&#?\w+;|\\[^\w\s]", text)]
