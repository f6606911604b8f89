"""Self-contained HTML pages in the style of the report: no script, no external reference."""

from functools import cache

from jinja2 import BaseLoader, ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gangline.report import facts, palette, svg
from gangline.report.facts import phases_of
from gangline.report.inputs import input_digests, version_rows
from gangline.report.text import change_words, clean, percent, place, quantity, share_words, short
from gangline.report.training_facts import drill_result, lost_work
from gangline.units import format_bytes, format_count, format_number, format_seconds, format_step


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


def template_environment(*loaders: BaseLoader) -> Environment:
    """Where the templates of a record are found, after those of `loaders`; whatever a value holds, it is text."""
    environment = Environment(
        loader=ChoiceLoader([*loaders, PackageLoader("gangline.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: value if isinstance(value, Markup) else clean(value),
    )
    environment.filters |= {
        "bytes": format_bytes, "count": format_count, "number": format_number, "seconds": format_seconds,
        "percent": percent, "change_words": change_words, "share_words": share_words, "short": short,
        "step": format_step, "quantity": quantity, "place": place, "time_of": facts.time_of,
        "drill_result": drill_result, "lost_work": lost_work,
        "input_digests": input_digests, "version_rows": version_rows,
    }  # fmt: skip
    environment.globals |= {
        "marks": facts.MARKS, "side_marks": facts.SIDE_MARKS, "stage_marks": facts.STAGE_MARKS, "phases": phases_of,
        "ledger_bar": svg.ledger_bar, "causes": palette.CAUSES,
    }  # fmt: skip
    return environment
