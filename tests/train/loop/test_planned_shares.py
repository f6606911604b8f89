"""Gangs that begin with unlike shares: the weights of one process, and the same shares after a restart."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tests.train.gang import KEY, stored_model, tiny_plan
from tests.train.loop.test_health_checks import CODE, oracle
from tests.train.parallel.long import CODE as LONG
from tests.train.parallel.long import long_plan, one_process, require_parity

from gangline.checkpoint.format.folder import CheckpointFolder
from gangline.checkpoint.format.stored_tensors import stored_digests
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Memory, ProgramSpec
from gangline.train.loop.checkpointing import TrainingProgress
from gangline.train.loop.health_checks import HealthChecks

HYBRID = {"mesh": Mesh(dp_replicate=2, dp_shard=2), "global_batch": 24, "shares": (18, 6)}
EACH = {"memory": Memory(gradient_sync="each")}
"""Shards reduce after each pass, of which the replicas have unlike numbers."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("strategy", "changes"),
    [
        ("ddp", {"global_batch": 16, "shares": (12, 4)}),
        ("hsdp", HYBRID | EACH),
        pytest.param("hsdp", HYBRID, marks=pytest.mark.slow),
    ],
)
def test_gang_of_unlike_shares_trains_the_weights_of_one_process(make_gang, strategy, changes):
    gang = make_gang(CODE)
    plan = tiny_plan(strategy, **{"steps": 6, "micro_batch": 2} | changes)
    plan = replace(plan, program=ProgramSpec(task="model:Paced"))
    assert set(gang.run(plan, PACE="0.005")) == {0}, gang.log()
    first, last = (
        sum(each["phases"]["forward"] for each in gang.events(rank, "step")) for rank in (0, plan.world_size - 1)
    )
    assert first > 2 * last, "the first replica has three times the samples of the last one"
    wanted, losses = oracle(plan.steps, plan.global_batch)
    found = stored_model(gang, gang.result().checkpoint)
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, atol=1e-5, rtol=0)
    assert [loss for _, loss in gang.result().jobs[0].losses] == pytest.approx(losses, rel=1e-5)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("mesh", [Mesh(dp_replicate=2, tp=2), Mesh(dp_replicate=2, cp=2)])
def test_replicas_that_cut_the_model_or_the_sequence_take_unlike_shares(make_gang, mesh):
    plan = replace(long_plan(mesh, "Long"), shares=(6, 2), micro_batch=1)
    require_parity(make_gang(LONG), plan, one_process("Long"), gate=1e-5)


@pytest.mark.long
def test_restarted_gang_continues_with_the_shares_of_its_plan_bit_for_bit(make_gang):
    every = CheckpointPolicy(every=3, asynchronous=False)
    plan = tiny_plan("ddp", model={"width": 8, "dropout": 0.2}, steps=6, micro_batch=2, checkpoint=every, shares=(6, 2))
    whole, gang = make_gang(), make_gang()
    assert whole.run(plan) == [0, 0], whole.log()
    assert gang.run(plan, STRIKE="kill:1:5") == [34, 137], gang.log()
    assert gang.run(plan) == [0, 0], gang.log()
    assert [each["step"] for each in gang.events(event="resumed")] == [3]
    ends = [each.result().checkpoint for each in (whole, gang)]
    one, other = (stored_digests(each.store, end, KEY) for each, end in zip((whole, gang), ends, strict=True))
    assert one == other
    assert CheckpointFolder.open(gang.store, ends[1], KEY).state().numbers["shares"] == [6, 2]


@pytest.mark.parametrize(("saved", "answer"), [((), "name"), ((5, 3), "name"), ((4, 2, 2), "rebalance")])
def test_resume_takes_the_shares_of_the_plan_unless_measured_ones_are_wanted_and_fit(saved, answer):
    plan = tiny_plan("ddp", shares=(6, 2))
    plan = replace(plan, recovery=replace(plan.recovery, stragglers=answer))
    checks = HealthChecks(SimpleNamespace(plan=plan, rank=1, device=torch.device("cpu")))
    progress = TrainingProgress(seed=1, step=5, shares=saved)
    checks.resumed(progress)
    assert progress.shares == (6, 2)


def test_resume_keeps_measured_shares_where_the_plan_wants_them():
    plan = tiny_plan("ddp", shares=(6, 2))
    plan = replace(plan, recovery=replace(plan.recovery, stragglers="rebalance"))
    progress = TrainingProgress(seed=1, step=5, shares=(5, 3))
    HealthChecks(SimpleNamespace(plan=plan, rank=1, device=torch.device("cpu"))).resumed(progress)
    assert progress.shares == (5, 3)
