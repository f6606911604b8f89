"""Each rule of a candidate that is started as a server, with what it refuses."""

from dataclasses import replace

import pytest

from gangline.spec.config.infer_table import InferTable, ServeGate
from gangline.spec.config.line import GateTable, Line, ProjectTable, PublishTable, QualityGate, TrainTable
from gangline.spec.config.rules_line import serve_rules
from gangline.spec.config.structure import bound_problems

GOOD = Line(
    project=ProjectTable(name="digits", task="model:Task"), train=TrainTable(steps=8, global_batch=8),
    publish=PublishTable(smoke="serve"), gate=GateTable(serve=ServeGate(worse_percent=15)),
)  # fmt: skip


def keys(line):
    return [problem.key for problem in (*bound_problems(line), *serve_rules(line))]


def test_good_lines_have_no_problem():
    assert keys(GOOD) == []
    assert keys(replace(GOOD, gate=GateTable())) == []
    assert keys(replace(GOOD, gate=GateTable(), publish=PublishTable())) == []


@pytest.mark.parametrize("smoke", [True, False])
def test_gate_wants_a_smoke_that_measures(smoke):
    assert keys(replace(GOOD, publish=PublishTable(smoke=smoke))) == ["gate.serve"]


def test_gate_wants_a_limit():
    assert keys(replace(GOOD, gate=GateTable(serve=ServeGate()))) == ["gate.serve"]


@pytest.mark.parametrize("name", ["p99_ms", "memory_bytes", "worse_percent"])
@pytest.mark.parametrize("value", [-1, 0])
def test_limits_are_above_zero(name, value):
    assert keys(replace(GOOD, gate=GateTable(serve=ServeGate(**{name: value})))) == [f"gate.serve.{name}"]


def test_a_command_is_served_by_its_handler():
    line = replace(GOOD, project=ProjectTable(name="digits", command=("python", "train.py")))
    assert keys(line) == ["publish.smoke"]
    assert keys(replace(line, infer=InferTable(handler="serve:Handler"))) == []


def test_a_data_set_is_not_served():
    assert keys(replace(GOOD, publish=PublishTable(smoke="serve", dataset="wiki"))) == ["publish.smoke"]


def test_gates_of_quality_judge_before_anything_is_served():
    gates = GateTable(quality=(QualityGate(metric="serve.p99_ms", better="lower"),))
    assert keys(replace(GOOD, gate=gates)) == ["gate.quality[0].metric"]
