"""A comparison as one HTML file, with the look of the report."""

from gangline.report.comparison.text import curve_words, shown_numbers, spread_word, unchanged_words, unpinned_lines
from gangline.report.comparison.types import ComparedCurves, Comparison
from gangline.report.pages import render_page
from gangline.report.svg import Chart, curve_on_band
from gangline.spec.measurements import CurvePoint

_TONES = {"BETTER": "passed", "SAME": "passed", "WORSE": "failed", "NOT COMPARABLE": "open"}


def render_html_comparison(comparison: Comparison) -> str:
    """The whole page."""
    shown, folded = shown_numbers(comparison)
    return render_page(
        "compare.html.j2",
        comparison=comparison,
        numbers=shown,
        folded=folded,
        labels=comparison.labels,
        tone=_TONES[comparison.outcome],
        chart=_chart(comparison.curves),
        unchanged=unchanged_words(comparison.unpinned),
        unpinned=unpinned_lines(comparison.unpinned),
        spread=spread_word(comparison),
        said=curve_words(comparison.curves) if comparison.curves else "",
    )


def _chart(curves: ComparedCurves | None) -> Chart | None:
    """This run on the base's band, the base as a thin line."""
    if curves is None:
        return None
    empty = (None,) * len(curves.steps)
    rows = zip(curves.steps, curves.this, curves.low or empty, curves.high or empty, strict=True)
    points = [CurvePoint(step=step, value=value, low=low, high=high) for step, value, low, high in rows]
    return curve_on_band(points, curves.metric, [curves.base])
