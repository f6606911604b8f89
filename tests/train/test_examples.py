"""Each example is a whole model repository: its line is read, its program trains a few steps on two ranks."""

from dataclasses import replace

import pytest
from tests.train.gang import ROOT, make_plan, sample_text

from gangline.spec.config.load import load_line
from gangline.spec.mesh import Mesh
from gangline.spec.plan import ProgramSpec

EXAMPLES = ROOT / "examples"


def plan_of(name, strategy, **changes):
    line = load_line(EXAMPLES / name / "line.toml")
    program = ProgramSpec(task=line.project.task, command=line.project.command or ())
    plan = make_plan(
        strategy, program=program, model=line.model, optimizer=line.optimizer, schedule=line.train.schedule,
        steps=4, global_batch=8, micro_batch=4,
    )  # fmt: skip
    return replace(plan, **changes)


@pytest.mark.parametrize("name", ["bytegpt", "digits"])
def test_task_trains_and_is_evaluated(make_gang, name):
    gang = make_gang(EXAMPLES / name)
    assert gang.run(plan_of(name, "ddp", data=gang.put_text(sample_text(40_000)))) == [0, 0], gang.log()
    result = gang.result()
    assert result.final_step == 4
    assert {"bytegpt": "eval_loss", "digits": "accuracy"}[name] in result.jobs[0].metrics


@pytest.mark.parametrize("mesh", [Mesh(dp_shard=2, ep=2), Mesh(cp=2)])
def test_mixture_of_experts_lies_over_ranks_and_its_text_is_cut(make_gang, mesh):
    gang = make_gang(EXAMPLES / "moe")
    model = {"layers": 2, "width": 64, "context": 64, "experts": 4}
    plan = plan_of("moe", "none", mesh=mesh, model=model, data=gang.put_text(sample_text(20_000)))
    assert gang.run(replace(plan, strategy="explicit")) == [0, 0], gang.log()
    metrics = gang.result().jobs[0].metrics
    assert 0 < metrics["cross_entropy"] < metrics["eval_loss"]


def test_program_with_a_session_fits_its_curve(make_gang):
    gang = make_gang(EXAMPLES / "command")
    plan = plan_of("command", "ddp", steps=200, global_batch=64, micro_batch=32)
    assert gang.run_program(plan) == [0, 0], gang.log()
    assert gang.result().jobs[0].metrics["eval_loss"] < 0.05


def test_plain_program_runs_in_each_rank(make_gang):
    gang = make_gang(EXAMPLES / "plain")
    assert gang.run_program(plan_of("plain", "ddp")) == [0, 0]
    assert "rank 1 of 2: slope 3.000" in gang.log(1)
