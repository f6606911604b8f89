"""Text of a record as it may be shown: whatever a commit or a program wrote is data, never markup or a command."""

import re

from gangline.units import format_bytes, format_count, format_number, format_step

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


def visible(text: str, limit: int = 4000) -> str:
    """One line as it was written, its indentation too, without what steers a terminal or hides."""
    shown = _INVISIBLE.sub("", text[: limit * 8].expandtabs().replace("\n", " ")).rstrip()
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
    return format_step(seconds)


def quantity(value: float, unit: str = "") -> str:
    """A value in its unit as people say it: `539 MB`, `314 ms`, `6.5 k/s`, `2.375 nats`."""
    if unit == "B":
        return format_bytes(value)
    if unit == "s":
        return step_time(value)
    if unit == "1/s":
        return f"{format_count(value)}/s"
    return f"{format_number(value)} {clean(unit, 20)}".rstrip()


def place(node: str) -> str:
    """Where a rank runs; a bare number is a node's rank."""
    return f"node {node}" if node.isdigit() else clean(node, 60)
