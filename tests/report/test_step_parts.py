"""Parts of a step on the surfaces: forecast beside measured, nothing made up, nothing too small for a word."""

from dataclasses import replace

from tests.report.records import bare, passed

from gangline.report.training_facts import part_rows, part_words
from gangline.spec.forecast import Forecast, Term


def record(forecast=(), measured=()):
    base = passed()
    terms = [tuple(Term(part=part, seconds=s, origin="default") for part, s in each) for each in (forecast, measured)]
    plan = replace(
        base.plan,
        forecast=Forecast(step_seconds=0.1, terms=terms[0]),
        measured=Forecast(step_seconds=0.1, terms=terms[1]),
    )
    return replace(base, plan=plan)


def test_parts_are_reported_in_their_order_whichever_side_knows_them():
    rows = part_rows(record([("other", 0.01), ("compute", 0.09)], [("data", 0.02), ("compute", 0.08)]))
    assert [(row.name, row.forecast, row.measured) for row in rows] == [
        ("data", None, 0.02), ("compute", 0.09, 0.08), ("other", 0.01, None),
    ]  # fmt: skip
    assert [row.origin for row in rows] == ["not forecast", "default", "default"]


def test_what_is_not_known_is_not_a_zero():
    assert part_words(record([("compute", 0.09)])) == "compute 90 ms, measured unknown"
    assert part_words(record()) == part_words(bare()) == ""


def test_a_part_of_nothing_is_left_out():
    assert [row.name for row in part_rows(record([("data", 0.0004), ("compute", 0.1)], [("data", 0.0)]))] == ["compute"]
