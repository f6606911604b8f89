"""Weights that a session's metrics are of, against those of its checkpoint: under ddp and fsdp, after a resume."""

import pytest
import torch
from tests.train.gang import tiny_plan

from gangline.spec.gang.status import WeightsFile
from gangline.spec.plan import CheckpointPolicy, ProgramSpec
from gangline.train.api.measured_weights import MeasuredWeights, fingerprint

PROGRAM = """
import math, os, torch
from gangline.train import Session, parallelize
from model import Net, Points, Tiny

task, act = Tiny(), os.environ.get("ACT", "")
with Session() as session:
    model = parallelize(Net(norm=act == "norm"), session, hints=task.hints)

    def errors_of(batch):
        errors = (model(batch["x"]) - batch["y"]).abs()
        return {"error": (errors.sum(), len(errors))}

    optimizer = session.optimizer(model)
    for batch in session.batches(Points(0, 37)):
        session.backward(task.loss(model(batch["x"]), batch))
        if session.step(optimizer) and act == "early" and session.step_number == 2:
            session.report(**session.evaluate(Points(1000, 11), errors_of))
    if act == "averaged":
        kept = [each.detach().clone() for each in model.parameters()]
        with torch.no_grad():
            for each in model.parameters():
                each.mul_(0.5)
        found = session.evaluate(Points(1000, 11), errors_of)
        with torch.no_grad():
            for each, before in zip(model.parameters(), kept):
                each.copy_(before)
        session.report(**found, half=found["error"] / 2)
    elif act == "direct":
        model(torch.zeros(2, 4))
        session.report(error=0.5)
    elif act != "early":
        found = session.evaluate(Points(1000, 11), errors_of)
        session.report(**found, half=found["error"] / 2)
"""


@pytest.fixture
def gang(make_gang):
    made = make_gang()
    (made.code / "train.py").write_text(PROGRAM)
    return made


def plan_of(strategy):
    policy = CheckpointPolicy(every=3, asynchronous=False)
    program = ProgramSpec(command=("python", "train.py"))
    return tiny_plan(strategy, program=program, checkpoint=policy, steps=6, micro_batch=2)


def measured(gang):
    """Names of metrics by what they were measured on."""
    return {name: set(each.metrics) for each in gang.result().jobs[0].evaluations for name in each.weights}


@pytest.mark.parametrize(("strategy", "act"), [("ddp", "norm"), ("fsdp", ""), ("fsdp", "direct")])
def test_metrics_after_the_last_step_are_of_the_last_checkpoint_and_still_are_after_a_resume(gang, strategy, act):
    wanted = {"error"} if act == "direct" else {"error", "half"}
    for _ in range(2):
        assert gang.run_program(plan_of(strategy), ACT=act) == [0, 0], gang.log()
        assert measured(gang) == {gang.result().checkpoint: wanted}
    assert gang.events(0, "resumed")[-1]["step"] == 6


@pytest.mark.parametrize(("strategy", "act"), [("fsdp", "averaged"), ("ddp", "early")])
def test_metrics_of_averaged_or_earlier_weights_are_of_others(gang, strategy, act):
    assert gang.run_program(plan_of(strategy), ACT=act) == [0, 0], gang.log()
    assert measured(gang) == {"other weights": {"error", "half"} if act == "averaged" else {"error"}}


def test_evaluated_weights_without_a_known_save_are_unknown():
    weights = MeasuredWeights(torch.nn.Linear(1, 1))
    weights.evaluated(4, {"error": 0.5})
    weights.reported(4, {"error": 0.5})
    assert weights.evaluations("run/step-00000004") == ()
    weights.saved(4)
    (found,) = weights.evaluations("run/step-00000004")
    assert (found.metrics, found.weights) == ({"error": 0.5}, {"run/step-00000004": WeightsFile()})
    assert weights.evaluations(None) == ()


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.complex64, torch.bool])
def test_a_fingerprint_knows_a_changed_element_of_tensors_of_any_kind(kind):
    model = torch.nn.Module()
    model.register_buffer("empty", torch.empty(0))
    model.register_buffer("values", torch.ones(8).to(kind))
    before = fingerprint(model.state_dict())
    assert fingerprint(model.state_dict()) == before
    model.values[3] = 0
    assert fingerprint(model.state_dict()) != before
