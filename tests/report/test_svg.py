"""Drawings: valid XML with any numbers, everything inside the frame."""

import math
from xml.etree.ElementTree import fromstring

from hypothesis import given
from hypothesis import strategies as st

from gangline.report import svg
from gangline.report.text import broken_words
from gangline.spec.measurements import BrokenSteps, CurvePoint

numbers = st.floats(allow_nan=True, allow_infinity=True, width=32) | st.floats(-1e6, 1e6)
finite = st.floats(-1e9, 1e9)


@given(values=st.lists(numbers, max_size=64), seeds=st.lists(st.lists(numbers, max_size=64), max_size=3))
def test_any_curve_is_drawn_inside_its_frame(values, seeds):
    points = [CurvePoint(step=i + 1, value=v) for i, v in enumerate(values)]
    chart = svg.curve_on_band(points, "loss", seeds)
    drawn = sum(map(math.isfinite, values))
    assert (chart is None) == (drawn < 2)
    if chart:
        for line in fromstring(chart.svg).iter("polyline"):
            places = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
            assert all(-0.1 <= x <= svg.WIDTH + 0.1 and -0.1 <= y <= svg.HEIGHT + 0.1 for x, y in places)
        labels = [float(label) for label in chart.y_labels]
        assert 2 <= len(labels) <= 9
        assert labels == sorted(labels, reverse=True)


steps = st.integers(1, 100)
spans = st.builds(lambda a, b: BrokenSteps(first=min(a, b), last=max(a, b), count=1), steps, steps)


@given(broken=st.lists(spans, min_size=1, max_size=64))
def test_steps_that_are_not_finite_are_bars_inside_the_frame_and_words(broken):
    points = [CurvePoint(step=step, value=1.0 / step) for step in (10, 20, 40)]
    chart = svg.curve_on_band(points, "loss", broken=broken)
    drawing = fromstring(chart.svg)
    bars = [each for each in drawing.iter("rect") if each.attrib.get("class") == "f-red"]
    assert len(bars) == len(broken)
    for bar in bars:
        left, width = float(bar.attrib["x"]), float(bar.attrib["width"])
        assert left >= 0
        assert width >= 4
        assert left + width <= svg.WIDTH + 0.1
    assert drawing.attrib["aria-label"].endswith(f", not finite at {broken_words(broken)}")
    last = max(40, *(each.last for each in broken))
    assert (chart.x_labels[0], chart.x_labels[-1]) == (f"{min(10, *(each.first for each in broken))}", f"{last}")


@given(low=finite, span=st.floats(0, 1e9))
def test_axis_ends_are_round_and_hold_the_values(low, span):
    bottom, top, ticks = svg._nice(low, low + span)
    slack = 1e-6 * max(abs(low), span, 1)
    assert bottom <= low + slack
    assert top >= low + span - slack
    assert 2 <= ticks <= 9


def test_band_is_one_polygon_under_the_line():
    points = [CurvePoint(step=i, value=1.0, low=0.9, high=1.1) for i in range(10)]
    chart = svg.curve_on_band(points, "loss")
    tags = [element.tag for element in fromstring(chart.svg)]
    assert tags.index("polygon") < tags.index("polyline")


def test_labels_are_escaped():
    assert "<b>" not in svg.sparkline([1.0, 2.0], "<b>bold</b>")


@given(shares=st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_ledger_bar_stays_within_its_width(shares):
    whole = sum(shares) or 1.0
    bar = svg.ledger_bar([("compute", share, share / whole) for share in shares])
    ends = [float(r.attrib["x"]) + float(r.attrib["width"]) for r in fromstring(bar).iter("rect")]
    assert max(ends) <= svg.WIDTH + 1
