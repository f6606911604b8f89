"""Two records: the outcome follows the bands, and what changed is named."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report import records

from gangline.report.compare import compare
from gangline.report.compare_text import render_comparison
from gangline.spec.record import Base

BASE = records.passed()


def with_loss(value, better="lower"):
    metric = replace(BASE.metrics["eval_loss"], value=value, better=better, band=None)
    return replace(BASE, run=replace(BASE.run, id=records.THIS_RUN), metrics={"eval_loss": metric})


@given(value=st.floats(0.1, 10), better=st.sampled_from(["lower", "higher"]))
def test_outcome_is_the_side_of_the_band(value, better):
    band = BASE.metrics["eval_loss"].band
    inside = band.low <= value <= band.high
    good = value < band.low if better == "lower" else value > band.high
    outcome = compare(BASE, with_loss(value, better)).outcome
    assert outcome == ("SAME" if inside else "BETTER" if good else "WORSE")


def test_a_run_against_itself_is_the_same_and_nothing_changed():
    comparison = compare(BASE, BASE)
    assert comparison.outcome == "SAME"
    assert comparison.changes == ()
    assert "nothing changed" in render_comparison(comparison)


def test_the_one_change_is_named_with_both_values():
    comparison = compare(BASE, records.refused())
    assert comparison.outcome == "WORSE"
    text = render_comparison(comparison)
    assert "one change: line.toml model.width 128 -> 64" in text
    assert "eval_loss 2.52 nats against 2.369 ± 1.6 %: outside the band" in text
    assert f"from step {comparison.outside_from}" in text


def test_the_curve_is_judged_only_on_the_band_of_this_base():
    other = replace(
        records.refused(), commit=replace(records.refused().commit, base=Base(commit="0" * 40, run="other"))
    )
    assert compare(BASE, other).outside_from is None


@pytest.mark.parametrize(
    ("this", "why"),
    [
        (records.failed(), "no metrics"),
        (replace(with_loss(2.0), inputs=replace(BASE.inputs, data="d" * 64)), "the data differ"),
        (replace(with_loss(2.0), run=replace(BASE.run, project="other")), "two projects"),
        (replace(with_loss(2.0), metrics={"accuracy": BASE.metrics["eval_loss"]}), "no metric in common"),
    ],
)
def test_what_cannot_be_compared_says_why(this, why):
    comparison = compare(BASE, this)
    assert comparison.outcome == "NOT COMPARABLE"
    assert why in comparison.why


def test_without_a_band_nothing_is_claimed_and_the_way_to_one_is_named():
    bandless = replace(BASE, metrics={"eval_loss": replace(BASE.metrics["eval_loss"], band=None)})
    comparison = compare(bandless, with_loss(2.0))
    assert comparison.outcome == "NOT COMPARABLE"
    assert "evaluate.seeds = 3" in comparison.next_command


def test_packages_code_and_plan_are_told_apart():
    this = with_loss(2.37)
    this = replace(
        this,
        inputs=replace(BASE.inputs, versions={**BASE.inputs.versions, "torch": "2.14.0"}, code="1" * 64),
        plan=replace(BASE.plan, name="fsdp-2"),
    )
    assert {change.kind for change in compare(BASE, this).changes} == {"package", "code", "plan"}


def test_other_data_asks_for_the_base_on_the_data_of_today():
    this = replace(with_loss(2.0), inputs=replace(BASE.inputs, data="d" * 64))
    assert f"gangline run --commit {BASE.commit.sha[:8]} --again" in compare(BASE, this).next_command
