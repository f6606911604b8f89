"""What counts as an answer: the number of the step that is asked, of runs that were asked as their line asks."""

import math
from dataclasses import replace

import pytest
from tests.report import records

from gangline.bisect.recorded_values import (
    MetricAtStep,
    cheapest_step,
    next_curve_step,
    read_values,
    step_to_measure,
    values_of,
)
from gangline.line.results.loss_curve import thin
from gangline.spec.measurements import Drill
from gangline.spec.record import StageInfo
from gangline.spec.run_flags import NOT_FINITE, STEPS_TOLD
from gangline.storage.open import open_store

BASE = records.passed()
LINE = dict(BASE.inputs.values)
LAST = MetricAtStep(metric="eval_loss", at=120, since="2026-01-01T00:00:00Z")


def with_values(record, **values):
    keys = {name.replace("__", "."): value for name, value in values.items()}
    return replace(record, inputs=replace(record.inputs, values=record.inputs.values | keys))


def test_a_whole_run_answers_for_its_last_step_by_seed_and_for_any_step_of_its_course():
    assert values_of(BASE, "eval_loss", 120) == {1: 2.375, 2: 2.361, 3: 2.371}
    assert values_of(BASE, "eval_loss", 60) == {}
    step = BASE.curve.points[30].step
    assert values_of(BASE, "loss", step)[2] == BASE.curve.seed_points["2"][30]
    assert set(values_of(BASE, "loss", step)) == {1, 2, 3}


def test_a_run_that_was_cut_short_answers_for_its_own_last_step():
    cut = with_values(BASE, train__stop_at=60)
    assert values_of(cut, "eval_loss", 60) == {1: 2.375, 2: 2.361, 3: 2.371}
    assert values_of(cut, "eval_loss", 120) == {}


def test_a_program_that_reports_no_steps_has_a_value_at_its_end_alone():
    reported = StageInfo(state="done", outputs={STEPS_TOLD: False})
    cut = with_values(replace(BASE, stages=BASE.stages | {"train": reported}), train__stop_at=60)
    found = read_values([cut], LINE, replace(LAST, at=60))
    assert (found.values, found.problem) == ({}, "its program reports no steps: leave out @STEP")
    assert found.unreported
    ended = with_values(cut, train__stop_at=120)
    assert read_values([ended], LINE, replace(LAST, metric="nope")).problem == "its program reports no nope"
    assert read_values([cut], LINE, LAST).values == {1: 2.375, 2: 2.361, 3: 2.371}


def test_a_training_that_diverged_is_an_answer_for_all_its_seeds():
    diverged = replace(BASE, run=replace(BASE.run, exit_code=31, verdict="failed"))
    assert values_of(diverged, "eval_loss", 120) == dict.fromkeys((1, 2, 3), math.inf)


def test_a_metric_that_is_not_finite_at_the_end_is_an_answer_for_its_seed_there():
    train = StageInfo(state="done", outputs={NOT_FINITE: {"loss": "nan"}})
    broken = replace(BASE, stages=BASE.stages | {"train": train})
    assert values_of(broken, "loss", 120) == {1: math.inf}
    step = BASE.curve.points[30].step
    assert values_of(broken, "loss", step) == values_of(BASE, "loss", step)


@pytest.mark.parametrize(
    "other",
    [
        with_values(BASE, model__width=64),
        replace(BASE, commit=replace(BASE.commit, patch="blobs/sha256/00")),
        replace(BASE, commit=replace(BASE.commit, trust="fork")),
        replace(BASE, drills=(Drill(name="kill-rank", row="T1", result="held"),)),
    ],
)
def test_runs_of_another_question_do_not_count(other):
    assert read_values([BASE], LINE, LAST).values == {1: 2.375, 2: 2.361, 3: 2.371}
    assert read_values([other], LINE, LAST).values == {}


def test_seeds_gates_and_what_comes_after_may_differ():
    reported = with_values(BASE, train__seed=7, evaluate__seeds=9, gate__require_base=True, prove__plan="off")
    assert read_values([reported], LINE, LAST).runs == (BASE.run.id,)


def test_only_runs_of_the_search_itself_cost_it_something_or_say_that_a_commit_is_broken():
    own = with_values(BASE, train__stop_at=120)
    assert read_values([BASE], LINE, LAST).seconds == 0
    assert read_values([own], LINE, LAST).seconds == BASE.ledger.allocated_seconds
    assert read_values([own], LINE, replace(LAST, since="2027-01-01T00:00:00Z")).seconds == 0
    failed = replace(own, metrics={}, run=replace(own.run, exit_code=30, verdict="failed", reason="no module torch"))
    assert read_values([failed], LINE, LAST).problem == "no module torch"
    assert read_values([replace(BASE, metrics={}, run=failed.run)], LINE, LAST).problem == ""


@pytest.mark.parametrize("steps", [1, 7, 64, 120, 10_000])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_places_of_the_course_are_those_that_courses_have(steps, share):
    asked = max(1, round(steps * share))
    place = next_curve_step(asked, steps)
    assert asked <= place <= steps
    assert place in {step for step, _ in thin(dict.fromkeys(range(1, steps + 1), 1.0), steps)}


def test_a_training_goes_to_where_both_courses_part_plus_a_tenth(tmp_path):
    store = open_store(f"file:{tmp_path}")
    narrow = replace(records.refused(), commit=replace(records.refused().commit, base=None))
    step = step_to_measure(store, BASE, narrow, steps=120)
    assert step in {point.step for point in BASE.curve.points} | {120}
    assert 1 < step < 60
    assert step_to_measure(store, BASE, BASE, steps=120) == 120
    assert step_to_measure(store, None, BASE, steps=120) == 120
    untold = replace(narrow, stages=narrow.stages | {"train": StageInfo(state="done", outputs={STEPS_TOLD: False})})
    assert step_to_measure(store, BASE, untold, steps=120) == 120


@pytest.mark.parametrize(("missing", "step"), [({30: 4, 120: 4}, 30), ({30: 9, 120: 2}, 120), ({30: 0, 120: 0}, 30)])
def test_a_later_step_is_taken_where_records_know_so_much_of_it_that_it_is_cheaper(missing, step):
    assert cheapest_step([30, 120], missing.__getitem__) == step
