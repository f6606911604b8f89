"""Files beside the pages: style sheet, script, icon, each with its media type. Read once, served as they are."""

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType

from markupsafe import Markup

from gangline.report import palette
from gangline.report.html import template_environment

_FOLDER = files("gangline.serve.pages") / "static"


def _style() -> bytes:
    """That of the report, so that both look alike, then that of the pages."""
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
"""By the last part of the address below `/static/`."""
