"""ZeRO-1 against DDP: the same weights, a share of the state, checkpoints that any strategy reads."""

from dataclasses import replace

import pytest
import torch
from tests.train.gang import MESHES, ROOT, Gang
from tests.train.parallel.memory_plans import plan_of
from tests.train.trained import trained, weight_gap

from gangline.errors import ConfigError
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, ProgramSpec, Schedule

HARD = {"clip_norm": 1.0, "schedule": Schedule(kind="cosine", warmup_steps=2)}


@pytest.fixture(scope="module")
def ddp(warm, tmp_path_factory):
    """Weights and losses of DDP."""
    return trained(
        Gang(tmp_path_factory.mktemp("ddp"), warm, ROOT / "tests" / "train" / "code"), plan_of("ddp", **HARD)
    )


@pytest.mark.proves("zero1", oracle="DDP", gate="1e-6")
def test_sharing_the_state_trains_the_weights_of_ddp(make_gang, reached, ddp):
    """Also with accumulation, clipping and a learning rate that changes from step to step."""
    found, losses = trained(make_gang(), plan_of("zero1", **HARD))
    assert weight_gap(found, ddp[0]) <= 1e-6
    reached(weight_gap(found, ddp[0]))
    assert losses == pytest.approx(ddp[1], rel=1e-6)


@pytest.mark.parametrize(("first", "second"), [
    ("zero1", "fsdp"), *(pytest.param(each, "zero1", marks=pytest.mark.slow) for each in ("fsdp", "zero1")),
])  # fmt: skip
def test_a_run_continues_under_another_strategy(make_gang, ddp, first, second):
    gang = make_gang()
    half = plan_of(first, **HARD, stop_at=3, checkpoint=CheckpointPolicy(every=3))
    trained(gang, half)
    whole = replace(half, stop_at=None, strategy=second, mesh=MESHES[second])
    found, _ = trained(gang, whole)
    assert gang.events(event="resumed")[-1]["step"] == 3
    for name, tensor in ddp[0].items():
        torch.testing.assert_close(found[name], tensor, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_half_precision_scales_the_loss_for_all_shares(make_gang):
    losses = {name: trained(make_gang(), plan_of(name, precision="fp16"))[1] for name in ("ddp", "zero1")}
    assert losses["zero1"] == pytest.approx(losses["ddp"], rel=1e-6)


def test_more_ranks_than_parameters_leave_some_without_a_share(make_gang):
    wanted, _ = trained(make_gang(), plan_of("zero1", task="Few", mesh=Mesh(dp_replicate=4), steps=2))
    found, _ = trained(make_gang(), plan_of("ddp", task="Few", mesh=Mesh(dp_replicate=4), steps=2))
    assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())


def test_an_optimizer_that_its_options_do_not_make_again_is_refused(make_gang):
    gang = make_gang()
    assert gang.run(plan_of("zero1", task="OwnRule")) == [ConfigError.exit_code] * 2
    assert "wanted an optimizer that Plain(parameters, **[])" in gang.log()


PROGRAM = """
from gangline.train import Loss, ParallelHints, Session, parallelize
from sequences import Sequences

task = Sequences()
with Session() as session:
    model = parallelize(task.build_model({"width": 8, "layers": 2, "dropout": 0.1}), session)
    optimizer = session.optimizer(model)
    for batch in session.batches(task.build_data("train", {})):
        session.backward(task.loss(model(batch["tokens"]), batch))
        session.step(optimizer)
"""


def test_a_programs_own_loop_shares_state_recomputes_and_keeps_it_in_files(make_gang):
    losses = {}
    memory = {"activation_checkpointing": "full", "offload": "optimizer_nvme"}
    for strategy, given in (("ddp", {}), ("zero1", memory)):
        gang = make_gang()
        (gang.code / "train.py").write_text(PROGRAM)
        plan = plan_of(strategy, memory=given, steps=3, program=ProgramSpec(command=("python", "train.py")))
        assert gang.run_program(plan) == [0, 0], gang.log()
        losses[strategy] = [loss for _, loss in gang.result().jobs[0].losses]
    assert losses["zero1"] == losses["ddp"]
