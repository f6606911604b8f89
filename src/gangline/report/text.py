"""Text of a record as it may be shown: whatever a commit or a program wrote is data, never markup or a command."""

import re

from gangline.units import format_seconds

_INVISIBLE = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"  # terminal sequences, whole
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # control characters but tab and newline
    "|[\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"  # what reorders, hides or breaks lines
    "|[\ud800-\udfff\ufffe\uffff]"  # what no XML may hold
)
_MARKDOWN = re.compile(r"([\\`*_\[\]~|])")


def clean(text: object, limit: int = 400) -> str:
    """One line of visible characters, at most `limit` of them, cut with an ellipsis."""
    head = str(text)[: limit * 8]
    shown = " ".join(_INVISIBLE.sub("", head).split())
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def markdown(text: object, limit: int = 400) -> str:
    """`clean`, escaped so that no forge sees markup, HTML, a mention or a reference in it."""
    escaped = _MARKDOWN.sub(r"\\\1", clean(text, limit))
    return (
        escaped.replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace("@", "&#64;")
        .replace("#", "&#35;")
    )


def percent(share: float, *, signed: bool = False) -> str:
    """`89 %`, `2.8 %`, `+1.6 %`: one decimal below ten."""
    value = share * 100
    digits = 0 if abs(value) >= 9.95 else 1
    sign = "+" if signed else ""
    return f"{value:{sign}.{digits}f} %"


def short(digest: str | None, size: int = 8) -> str:
    """Head of a digest or commit, `-` where there is none."""
    return digest.removeprefix("sha256:")[:size] if digest else "-"


def step_time(seconds: float) -> str:
    """`125 ms` below a second: steps differ where whole seconds would not show it."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else format_seconds(seconds)
