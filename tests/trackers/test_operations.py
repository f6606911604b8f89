"""What a tracker is sent, from records and events alone."""

from dataclasses import replace
from math import inf, nan

from hypothesis import given
from hypothesis import strategies as st
from tests.report import records
from tests.trackers.events import evaluated, operations, step, steps

from gangline.metrics.record_values import Price
from gangline.spec.measurements import BrokenSteps
from gangline.spec.record import Artifact, Event
from gangline.spec.run_flags import TRIAL
from gangline.trackers.operations import MOST_ARTIFACTS, points_of, tracked_run
from gangline.trackers.protocol import Point


def test_a_step_is_a_point_for_each_number_at_the_time_of_its_event():
    event = step(3, loss=0.5, learning_rate=0.1, tokens=100, peak_bytes=7)
    assert points_of(event) == [
        Point("loss", 3, 1_764_385_203_000, 0.5),
        Point("step_seconds", 3, 1_764_385_203_000, 0.5),
        Point("learning_rate", 3, 1_764_385_203_000, 0.1),
        Point("tokens", 3, 1_764_385_203_000, 100.0),
        Point("memory_peak_bytes", 3, 1_764_385_203_000, 7.0),
        Point("tokens_per_second", 3, 1_764_385_203_000, 200.0),
    ]


def test_numbers_that_are_not_finite_are_left_out_and_counted():
    for value in (nan, inf, -inf, None):
        assert [point.metric for point in points_of(step(1) | {"loss": value})] == ["step_seconds"]
    record = records.passed()
    broken = (BrokenSteps(first=2, last=3, count=2), BrokenSteps(first=9, last=9, count=1))
    record = replace(record, curve=replace(record.curve, broken=broken))
    assert operations(record, []).run.tags["gangline.left_out"] == "3 values of loss that are not finite"


def test_only_steps_and_evaluations_of_rank_zero_count():
    for event in (
        step(1) | {"rank": 1}, step(1) | {"event": "saved"}, step(1) | {"time": None}, step(1) | {"step": True},
        step(1) | {"step": -1}, evaluated(1) | {"metrics": "none"}, {}, step(1) | {"time": "yesterday"},
    ):  # fmt: skip
        assert points_of(event) == []
    assert points_of(evaluated(4, accuracy=0.5)) == [Point("accuracy", 4, 1_764_385_204_500, 0.5)]


@given(st.dictionaries(st.text(), st.one_of(st.none(), st.floats(), st.text(), st.lists(st.integers()), st.integers())))
def test_whatever_a_rank_writes_becomes_finite_points_with_one_visible_line_as_name(numbers):
    for point in points_of(step(1) | numbers | {"event": "step", "rank": 0, "step": 1, "time": 5.0}):
        assert abs(point.value) < inf
        assert "\n" not in point.metric
        assert 0 < len(point.metric) <= 200


def test_the_same_record_and_events_give_the_same_operations():
    record, events = records.passed(), [*steps(5), evaluated(5, eval_loss=2.3)]
    assert operations(record, events) == operations(record, [dict(event) for event in events])


def test_the_end_adds_what_gates_judged_and_an_open_run_has_no_end():
    record = records.passed()
    made = operations(record, steps(5))
    final = {point.metric.removeprefix("final/"): point.value for point in made.points if "final/" in point.metric}
    assert final == {name: metric.value for name, metric in record.metrics.items()}
    opened = operations(replace(record, run=replace(record.run, state="open", verdict=None)), steps(5))
    assert not [point for point in opened.points if "final/" in point.metric]
    assert (made.run.status, opened.run.status, opened.run.ended_ms) == ("finished", "running", None)
    assert made.run.ended_ms >= made.run.started_ms


def test_a_curve_that_no_event_has_comes_from_the_record():
    record = records.passed()
    points = [point for point in operations(record, []).points if point.metric == "loss"]
    assert [(point.step, point.value) for point in points] == [(p.step, p.value) for p in record.curve.points]
    with_events = [point for point in operations(record, steps(2)).points if point.metric == "loss"]
    assert len(with_events) == 2


def test_a_verdict_is_a_status():
    record = records.passed()
    statuses = {
        verdict: operations(replace(record, run=replace(record.run, verdict=verdict)), []).run.status
        for verdict in ("passed", "refused", "failed", "cancelled", "superseded")
    }
    assert statuses == {
        "passed": "finished", "refused": "finished", "failed": "failed", "cancelled": "killed", "superseded": "killed"
    }  # fmt: skip


def test_parameters_are_the_keys_of_the_line_and_tags_lead_back():
    record = records.passed()
    inputs = replace(record.inputs, values={"train.seed": 1, "search.trials": 40, "project.track": [], "a.b": ["x"]})
    artifacts = tuple(
        Artifact(kind="model", key=f"k{n}", media_type="x", size_bytes=n, sha256=f"{n}" * 3) for n in range(70)
    )
    record = replace(record, inputs=inputs, artifacts=artifacts)
    run = tracked_run(record, experiment="{project}-{branch}", price=Price(2.0, "EUR"))
    assert run.parameters == {"train.seed": "1", "a.b": '["x"]'}
    assert run.experiment == "bytegpt-main"
    assert run.tags["gangline.commit"] == record.commit.sha
    assert run.tags["gangline.plan_digest"] == record.plan.digest
    assert run.tags["gangline.artifact.model"] == "k0 0 bytes sha256:000"
    assert run.tags["gangline.artifact.model#2"] == "k1 1 bytes sha256:111"
    assert sum(name.startswith("gangline.artifact") for name in run.tags) == MOST_ARTIFACTS


def test_a_trial_is_in_the_group_of_its_search():
    record = records.passed()
    event = Event(time="2026-01-01T00:00:00Z", stage="resolve", kind=TRIAL, text="s-9f31c2a0-m4k7")
    run = tracked_run(replace(record, events=(event,)), experiment="e", price=None)
    assert (run.group, run.tags["gangline.search"]) == ("s-9f31c2a0-m4k7", "s-9f31c2a0-m4k7")
