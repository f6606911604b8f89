"""Programs that keep their own loop: in a gang, outside a gang, broken off and resumed."""

import os
import subprocess
import sys

import pytest
from tests.train.gang import KEY, ROOT, tiny_plan

from gangline.checkpoint.format.stored_tensors import stored_digests
from gangline.spec.plan import CheckpointPolicy, ProgramSpec

PROGRAM = """
import os, signal, torch
from torch import nn
from gangline.train import Loss, Session, parallelize
from model import Net, Points

with Session(steps=6, global_batch=8) as session:
    model = parallelize(Net(dropout=0.1), session)
    optimizer = session.optimizer(model)
    for number, batch in enumerate(session.batches(Points(0, 37))):
        if os.environ.get("ACT") == "raise" and number == 3:
            raise ValueError("the program's own mistake")
        if os.environ.get("ACT") == "term" and session.rank == 1 and number == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        errors = (model(batch["x"]) - batch["y"]) ** 2 * batch["weight"]
        session.backward(Loss(total=errors.sum(), weight=batch["weight"].sum()))
        session.step(optimizer)
    if not session.stopped:
        session.report(error=torch.tensor(float(session.world_size), requires_grad=True))
"""


@pytest.fixture
def gang(make_gang):
    made = make_gang()
    (made.code / "train.py").write_text(PROGRAM)
    return made


def command_plan(strategy, **changes):
    policy = CheckpointPolicy(every=3, asynchronous=False)
    return tiny_plan(strategy, program=ProgramSpec(command=("python", "train.py")), checkpoint=policy, **changes)


def test_program_trains_under_ddp_and_fsdp_to_the_same_losses(make_gang):
    found = {}
    for strategy in ("ddp", "fsdp"):
        gang = make_gang()
        (gang.code / "train.py").write_text(PROGRAM.replace("dropout=0.1", "dropout=0.0"))
        assert gang.run_program(command_plan(strategy, micro_batch=2)) == [0, 0], gang.log()
        found[strategy] = [loss for _, loss in gang.result().jobs[0].losses]
        assert gang.result().jobs[0].metrics == {"error": 2.0}
    assert found["ddp"] == pytest.approx(found["fsdp"], rel=1e-5)
    assert len(found["ddp"]) == 6


def test_program_asked_to_stop_saves_and_resumes_bit_for_bit(gang, make_gang):
    whole = make_gang()
    (whole.code / "train.py").write_text(PROGRAM)
    plan = command_plan("ddp")
    assert whole.run_program(plan) == [0, 0], whole.log()
    assert gang.run_program(plan, ACT="term") == [143, 143], gang.log()
    assert not (gang.home / "out" / "result.json").exists()
    assert gang.run_program(plan) == [0, 0], gang.log()
    ends = [stored_digests(each.store, each.result().checkpoint, KEY) for each in (gang, whole)]
    assert ends[0] == ends[1]


def test_program_s_own_failure_keeps_its_code(gang):
    assert gang.run_program(command_plan("none", micro_batch=8), ACT="raise") == [1]
    assert "the program's own mistake" in gang.log()


def test_what_goes_wrong_before_the_loop_has_its_number(gang):
    assert gang.run_program(command_plan("none", micro_batch=8), WORLD_SIZE="2") == [10], gang.log()
    assert "is for 1 ranks, this gang has 2" in gang.events(event="done")[-1]["reason"]


def test_a_session_outside_a_gang_trains(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "tests" / "train" / "code")}
    environ = {name: value for name, value in environ.items() if not name.startswith("GANGLINE_")}
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=environ, check=True)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


OWN = """
from torch.optim import Adadelta
from gangline.train import Session, parallelize
from model import Net, Points

class Backwards(Points):
    def epoch_order(self, epoch):
        return range(len(self) - 1, -1, -1)

seen = []
with Session(steps=6, global_batch=8) as session:
    model = parallelize(Net(), session)
    optimizer = session.optimizer(model, lambda net: Adadelta([{"params": list(net.parameters()), "lr": 0.5}]))
    assert type(optimizer) is Adadelta
    for batch in session.batches(Backwards(0, 37)):
        seen += batch["index"].tolist()
        session.backward(((model(batch["x"]) - batch["y"]) ** 2).mean())
        session.step(optimizer)
    if session.world_size == 1:
        assert seen == [*range(36, -1, -1), *range(36, 25, -1)], seen
"""


def test_a_program_may_bring_its_optimizer_and_an_order_of_samples(make_gang):
    found = {}
    for strategy, micro_batch in (("none", 8), ("ddp", 2)):
        gang = make_gang()
        (gang.code / "train.py").write_text(OWN)
        assert set(gang.run_program(command_plan(strategy, micro_batch=micro_batch))) == {0}, gang.log()
        found[strategy] = [loss for _, loss in gang.result().jobs[0].losses]
    assert found["none"] == pytest.approx(found["ddp"], rel=1e-5)


def test_an_optimizer_that_is_none_is_refused_by_name(gang):
    text = OWN.replace('Adadelta([{"params": list(net.parameters()), "lr": 0.5}])', "net.parameters()")
    (gang.code / "train.py").write_text(text)
    assert gang.run_program(command_plan("none", micro_batch=8)) == [10]
    assert "session.optimizer(model, make): wanted a torch.optim.Optimizer, found generator" in gang.log()


def test_a_rate_that_the_program_sets_is_refused_where_it_would_have_no_effect(gang):
    text = OWN.replace("        session.step(optimizer)", "        session.step(optimizer)\n        rates.step()")
    text = text.replace("    for batch in", "    rates = ExponentialLR(optimizer, 0.5)\n    for batch in")
    (gang.code / "train.py").write_text("from torch.optim.lr_scheduler import ExponentialLR\n" + text)
    assert gang.run_program(command_plan("none", micro_batch=8)) == [10]
    assert "the program set the learning rates to [0.25], the last step had [0.5]" in gang.log()
    assert gang.events(event="step")[-1]["step"] == 1
