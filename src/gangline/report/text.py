"""Text of a record as it may be shown: whatever a commit or a program wrote is data, never markup or a command."""

import re
from collections.abc import Sequence

from gangline import sanitize
from gangline.spec.measurements import BrokenSteps
from gangline.units import format_bytes, format_count, format_number, format_step

_MARKUP = re.compile(r"\A/|@(?=\w)|[#!&$%~](?=\d)|[\\`*_\[\]~|#$&<>]")
"""The first letter may begin a line, where GitLab takes `/close` for an order."""
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
ZERO_WIDTH_SPACE = "&#8203;"
"""A blank of no width: forges see no mention or reference where it parts the sign from the name. The sign as an entity
(`&#64;`) does not do it: GitHub looks for mentions in what the markdown came to."""


_MOST_BROKEN = 4
"""Places that are named."""


def clean(text: object, limit: int = 400) -> str:
    """One line of visible characters, at most `limit` of them, cut with an ellipsis."""
    head = str(text)[: limit * 8]
    shown = sanitize.one_line(head)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def shortened(text: str, limit: int) -> str:
    """A line of `limit` characters at most, cut in its middle, since names and paths differ at their ends."""
    head = min(_HEAD, (limit - 1) // 2)
    return text if len(text) <= limit else f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


_HEAD = 24
"""Characters of its beginning."""


def visible(text: str, limit: int = 4000) -> str:
    """One line as it was written, its indentation too, without what steers a terminal or hides."""
    shown = sanitize.visible(text[: limit * 8].expandtabs().replace("\n", " ")).rstrip()
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def markdown(text: object, limit: int = 400) -> str:
    """`clean`, escaped once so that no forge sees markup, HTML, a mention or a reference in it."""
    return _MARKUP.sub(_escape, clean(text, limit))


def code(text: object, limit: int = 400) -> str:
    """`clean` as a span of code, which it cannot end."""
    return f"`{clean(text, limit).replace('`', chr(39)) or '-'}`"


def _escape(match: re.Match[str]) -> str:
    sign, text = match[0], match.string
    escaped = _ENTITIES.get(sign) or (sign if sign in "@!%" else f"\\{sign}")
    is_reference = sign in "@#!&$%~" and re.match(r"\w" if sign == "@" else r"\d", text[match.end() : match.end() + 1])
    return escaped + ZERO_WIDTH_SPACE if is_reference else escaped


def percent(share: float, *, signed: bool = False) -> str:
    """`89 %`, `2.8 %`, `+1.6 %`: one decimal below ten."""
    value = share * 100
    digits = 0 if abs(value) >= 9.95 else 1
    sign = "+" if signed else ""
    return f"{value:{sign}.{digits}f} %"


def change_words(change: float | None) -> str:
    """`+1.6 %`, `-0.003 %` of what hardly changed, `100,000 times` of what is no longer alike; None is `-`."""
    if change is None:
        return "-"
    if abs(change) >= _MANY:
        return f"{change + 1:,.0f} times" if abs(change) < _MOST else f"{change + 1:.3g} times"
    if 0 < abs(change) < _HARDLY:
        return f"{change * 100:+.1g} %"
    return f"{change * 100:.5g} %" if -1 < change < _HARDLY - 1 else percent(change, signed=True)


_HARDLY, _MANY, _MOST = 0.0005, 99.0, 1e6
"""Changes that a percentage with one decimal does not show, that it only hides, and that need a power of ten."""


def share_words(share: float | None) -> str:
    """Share in percent; None is unknown."""
    return "unknown" if share is None else percent(share)


def broken_words(broken: Sequence[BrokenSteps]) -> str:
    """`step 7, steps 40 to 44, 3 of steps 60 to 90`; empty where there are none."""
    words = [_broken(each) for each in broken[:_MOST_BROKEN]]
    more = sum(each.count for each in broken[_MOST_BROKEN:])
    return ", ".join([*words, f"{more:,} more"] if more else words)


def _broken(steps: BrokenSteps) -> str:
    if steps.first == steps.last:
        return f"step {steps.first:,}"
    some = f"{steps.count:,} of " if steps.count <= steps.last - steps.first else ""
    return f"{some}steps {steps.first:,} to {steps.last:,}"


def short(digest: str | None, size: int = 8) -> str:
    """Head of a digest or commit, `-` where there is none."""
    return digest.removeprefix("sha256:")[:size] if digest else "-"


def quantity(value: float, unit: str = "") -> str:
    """A value in its unit as people say it: `539 MB`, `314 ms`, `6.5 k/s`, `2.375 nats`."""
    if unit == "B":
        return format_bytes(value)
    if unit == "s":
        return format_step(value)
    if unit == "1/s":
        return f"{format_count(value)}/s"
    return f"{format_number(value)} {clean(unit, 20)}".rstrip()


def place(node: str) -> str:
    """Where a rank runs; a bare number is a node's rank."""
    return f"node {node}" if node.isdigit() else clean(node, 60)
