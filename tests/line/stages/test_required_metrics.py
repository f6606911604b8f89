"""Metrics that a line wants of a task: one that it does not return is refused, whatever judges it."""

from types import SimpleNamespace

import pytest
from tests.line.records import record

from gangline.errors import ConfigError
from gangline.line.stages.evaluate import judge_metrics
from gangline.spec.config.line import GateTable, Line, ProjectTable, QualityGate, TrainTable
from gangline.spec.gang.status import GangResult, JobResult

RESULT = GangResult(role="evaluate", final_step=4, jobs=(JobResult(seed=1, step=4, metrics={"eval_loss": 2.0}),))


def judged(metric, **gate):
    quality = QualityGate(metric=metric, better="lower", **gate)
    line = Line(
        project=ProjectTable(name="demo", task="model:Demo"),
        train=TrainTable(steps=4, global_batch=2),
        gate=GateTable(quality=(quality,)),
    )
    return judge_metrics(SimpleNamespace(line=line, record=record(), base=None), RESULT)


@pytest.mark.parametrize("gate", [{}, {"limit": 2.5}, {"tolerance_percent": 1.0}])
def test_a_gate_on_what_the_task_does_not_return_is_refused(gate):
    with pytest.raises(ConfigError, match="wanted eval_los, the task returns eval_loss"):
        judged("eval_los", **gate)


@pytest.mark.parametrize("metric", ["eval_loss", "loss", "mfu"])
def test_what_the_task_returns_and_what_training_measures_may_be_judged(metric):
    assert judged(metric).keys() == {"eval_loss"}
