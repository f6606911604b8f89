"""Pages beside the report, with its look: one self-contained file each, no script, no outside reference."""

from functools import cache

from jinja2 import Environment
from markupsafe import Markup

from gangline.report import palette
from gangline.report.html import template_environment


def render_page(template: str, **values: object) -> str:
    """Equal values give equal bytes; whatever a value holds, it is text."""
    return (
        _environment()
        .get_template(template)
        .render(
            light=Markup(palette.style_rules(palette.LIGHT)),  # noqa: S704  # our own constants
            dark=Markup(palette.style_rules(palette.DARK)),  # noqa: S704  # our own constants
            **values,
        )
    )


@cache
def _environment() -> Environment:
    return template_environment()
