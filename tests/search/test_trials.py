"""Runs of trials: what a record and the lines of a driver say of them."""

import json
import math
from dataclasses import replace

import pytest
from tests.report.records import passed
from tests.search.functions import make_request

from gangline.errors import ConfigError
from gangline.search.prepare import _better
from gangline.search.trials import _MOST_VALUES, RunStatus, _add, _judged, _Lines, needed_values
from gangline.spec.config.load import load_line_text
from gangline.spec.measurements import Metric
from gangline.spec.record import StageInfo
from gangline.spec.run_flags import NOT_FINITE


def ended(request, **run):
    record = passed()
    record = replace(record, run=replace(record.run, state="ended", **{"verdict": "passed", "exit_code": 0} | run))
    return record, lambda changed: _judged(RunStatus(state="ended"), changed, request)


@pytest.fixture
def request_of_loss():
    return make_request(metrics=("eval_loss",))


def test_a_run_that_a_gate_refused_has_its_value(request_of_loss):
    record, judge = ended(request_of_loss, verdict="refused", exit_code=60)
    status = judge(replace(record, metrics={"eval_loss": Metric(value=2.5)}))
    assert (status.state, status.values) == ("ended", (2.5,))


def test_a_metric_that_is_not_finite_fails_its_trial(request_of_loss):
    record, judge = ended(request_of_loss)
    assert judge(replace(record, metrics={"eval_loss": Metric(value=math.inf)})).state == "failed"
    stage = StageInfo(state="done", outputs={NOT_FINITE: {"eval_loss": "nan"}})
    status = judge(replace(record, metrics={}, stages={**record.stages, "evaluate": stage}))
    assert (status.state, status.values, status.is_own_fault) == ("failed", None, True)
    assert "not finite" in status.reason


@pytest.mark.parametrize(("code", "own"), [(30, True), (31, True), (32, True), (34, False), (50, False)])
def test_a_failure_is_the_settings_own_or_the_machines(request_of_loss, code, own):
    record, judge = ended(request_of_loss, verdict="failed", exit_code=code, reason="why")
    status = judge(record)
    assert (status.state, status.is_own_fault, status.reason) == ("failed", own, "why")


def test_a_run_without_the_metric_says_what_it_has(request_of_loss):
    record, judge = ended(request_of_loss)
    status = judge(replace(record, metrics={"other": Metric(value=1.0)}))
    assert status.state == "failed"
    assert "its run reports other" in status.reason


def line(**data):
    return json.dumps({"event": "progress", "stage": "train", "data": {"rank": 0, **data}}).encode() + b"\n"


def test_lines_of_the_first_rank_alone_count_and_hostile_ones_do_not():
    lines = _Lines()
    for each in (
        line(event="step", step=1, loss=3.0), line(event="step", step=2, loss=None), line(event="step", step="9"),
        line(event="step", step=True, loss=1.0), line(event="step", step=3, loss=math.nan), b"not json\n", b"[]\n",
        line(event="step", step=4, loss="1e9"), line(event="step", step=5, rank=1, loss=0.0),
        b'{"event": "progress", "stage": "train", "data": [1]}\n',
        line(event="step", step=7, loss=9.0).replace(b"train", b"evaluate"),
    ):  # fmt: skip
        _add(lines, each, "loss")
    assert lines.series == {1: 3.0}
    assert lines.step == 4
    _add(lines, line(event="evaluated", step=4, metrics={"eval_loss": 2.0}), "eval_loss")
    _add(lines, line(event="evaluated", step=5, metrics=[2.0]), "eval_loss")
    assert lines.series == {1: 3.0, 4: 2.0}


def test_a_value_at_a_rung_is_a_mean_of_losses_or_the_first_metric_from_there_on():
    losses = RunStatus(state="running", step=80, series={step: float(step) for step in range(1, 81)})
    assert losses.at(80, "loss") == pytest.approx(75.5)  # the last eighth
    assert losses.at(81, "loss") is None
    measured = RunStatus(state="running", step=80, series={25: 2.0, 50: 1.0})
    assert measured.at(30, "eval_loss") == 1.0
    assert measured.at(60, "eval_loss") is None


@pytest.mark.parametrize("measured_by", ["loss", "m"])
def test_a_program_that_reports_without_end_takes_no_more_memory_and_has_the_same_value_at_each_rung(measured_by):
    request = make_request(measured_by=measured_by, rungs=(1_000, 60_000, 180_000), steps=600_000)
    course = {step: math.sin(step) for step in range(1, 200_001)}
    kept = needed_values(course, request)
    assert len(kept) < _MOST_VALUES
    for rung in request.rungs:
        whole, part = (RunStatus(state="running", step=200_000, series=each) for each in (course, kept))
        assert part.at(rung, measured_by) == whole.at(rung, measured_by)


@pytest.mark.parametrize("stated", ['better = "higher"', 'better = ["higher"]\nmetric = ["eval_loss"]'])
def test_a_direction_against_that_of_the_gate_is_refused(stated):
    line = load_line_text(
        f"""
[project]
name = "words"
command = ["python", "train.py"]
[train]
steps = 10
global_batch = 1
[[gate.quality]]
metric = "eval_loss"
better = "lower"
[search]
{stated}
[search.space]
"model.lr" = {{ low = 0.1, high = 1.0 }}
""",
        file="line.toml",
    )
    with pytest.raises(ConfigError, match="wanted lower for eval_loss, as its quality gate says"):
        _better(line, ("eval_loss",), None)
