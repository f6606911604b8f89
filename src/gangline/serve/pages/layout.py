"""Shared parts of all pages: templates, addresses, ages, and the static files (style sheet, script, icon)."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape

from gangline.report import palette
from gangline.report.pages import template_environment
from gangline.units import format_seconds

_FOLDER = files("gangline.serve.pages") / "static"


def _style() -> bytes:
    """Style rules of the report, so that both look alike, then those of the pages."""
    report = template_environment().get_template("report.css.j2")
    rules = {"light": palette.style_rules(palette.LIGHT), "dark": palette.style_rules(palette.DARK)}
    shared = report.render({name: Markup(rule) for name, rule in rules.items()})  # noqa: S704  # our own constants
    return shared.encode() + (_FOLDER / "pages.css").read_bytes()


STATIC: Mapping[str, tuple[str, bytes]] = MappingProxyType(
    {
        "style.css": ("text/css; charset=utf-8", _style()),
        "live.js": ("text/javascript; charset=utf-8", (_FOLDER / "live.js").read_bytes()),
        "icon.svg": ("image/svg+xml", (_FOLDER / "icon.svg").read_bytes()),
    }
)
"""Static files by the last part of the address below `/static/`."""


_WEB = re.compile(r"https?://[A-Za-z0-9\[][A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]{0,1000}")
_RUN = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")
POLL_SECONDS = 10
"""Interval at which a live page reloads itself if it gets no events."""
VERDICT_MARKS = {"passed": "✓", "refused": "✗", "failed": "✗", "cancelled": "■", "superseded": "»", "open": "▸"}


def draw(template: str, **values: Any) -> str:
    """A page from its template."""
    return _environment().get_template(template).render(values)


def address(*path: str, **query: str | Sequence[str] | None) -> Markup:
    """`/runs/<id>?run=a&run=b`: each part of the path quoted by itself, whatever it holds; empty fields left out."""
    given = {name: value for name, value in query.items() if value}
    asked = "?" + urlencode(given, doseq=True) if given else ""
    return escape("/" + "/".join(quote(part, safe="") for part in path) + asked)


def run_address(run: str) -> Markup | None:
    """Address of a run's page; None for what is no run's id."""
    return address("runs", run) if _RUN.fullmatch(run) else None


def outside_links(links: Mapping[str, str]) -> list[tuple[str, Markup]]:
    """Those that lead to a web page elsewhere, by name; a key of the store or any other scheme is no link."""
    return [(name, escape(url)) for name, url in sorted(links.items()) if _WEB.fullmatch(url)]


def seconds_of(time: str) -> float | None:
    """Seconds since the epoch of a record's time; None for what is none."""
    try:
        read = datetime.fromisoformat(time)
    except ValueError:
        return None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


def ago(seconds: float) -> str:
    """`just now`, `4 min ago`, `3 h ago`, `12 days ago`."""
    if seconds < 60:
        return "just now"
    for size, unit in ((86400, "day"), (3600, "h"), (60, "min")):
        if seconds >= (2 * size if unit == "day" else size):
            count = int(seconds // size)
            return f"{count} {unit}{'s' if unit == 'day' else ''} ago"
    raise AssertionError(seconds)


def age(time: str, now: float) -> str:
    """How long ago a record's time was; the time itself where it cannot be read."""
    then = seconds_of(time)
    return time if then is None else ago(max(now - then, 0.0))


def time_until(seconds: float) -> str:
    """`now`, or how long from now."""
    return f"in {format_seconds(seconds)}" if seconds > 0 else "now"


@cache
def _environment() -> Environment:
    environment = template_environment(PackageLoader("gangline.serve.pages"))
    environment.globals |= {
        "address": address, "age": age, "outside_links": outside_links, "verdict_marks": VERDICT_MARKS,
        "static": _static_address, "hence": time_until, "ago": ago,
    }  # fmt: skip
    return environment


@cache
def _static_address(name: str) -> Markup:
    """Address with the file's digest, so that a browser may keep it for ever."""
    return address("static", name, v=hashlib.sha256(STATIC[name][1]).hexdigest()[:8])
