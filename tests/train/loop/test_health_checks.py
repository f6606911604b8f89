"""What a gang asks for when a rank is slow and the plan says `evict`."""

import json
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.one_process import train
from tests.train.gang import ROOT, stored_model, tiny_plan

from gangline.fabric.reliability.shares import GAIN, even_shares
from gangline.fabric.reliability.step_times import WORK, WindowRange, WindowTimes
from gangline.fabric.reliability.stragglers import LOOKBACKS
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, ProgramSpec, Recovery, Size
from gangline.train.loop.checkpointing import TrainingProgress
from gangline.train.loop.health_checks import HealthChecks, WorkRebalancer, better_shares
from gangline.train.loop.sample_order import micro_batches, rank_spans

pytestmark = pytest.mark.long

CODE = ROOT / "tests" / "train" / "paced"
ALONE = Size(name="none-1", strategy="none", mesh=Mesh(), micro_batch=8)


@pytest.mark.parametrize(("sizes", "asks"), [((ALONE,), True), pytest.param((), False, marks=pytest.mark.slow)])
def test_node_of_a_slow_rank_is_asked_to_leave_where_the_plan_is_ready_for_that(make_gang, sizes, asks):
    gang = make_gang(CODE)
    plan = tiny_plan(
        "ddp", steps=105, checkpoint=CheckpointPolicy(every=1000), recovery=Recovery(stragglers="evict"), sizes=sizes
    )
    plan = replace(plan, program=ProgramSpec(task="model:Paced"))
    assert gang.run(plan, PACE="0.004", SLOW="1:2.5:0:1e9", LOCAL_WORLD_SIZE="1") == [0, 0], gang.log()
    said = gang.events(0, "straggler_answered")
    assert len(said) == 1
    if asks:
        wish = json.loads((gang.home / "evict.json").read_text())
        assert (wish["generation"], wish["rank"]) == (0, 1)
        assert "is to leave" in said[0]["reason"]
    else:
        assert not (gang.home / "evict.json").exists()
        assert "train.ranks" in said[0]["reason"]


SLOW = {"PACE": "0.004", "SLOW": "1:3:0:1e9"}


def test_deal_that_gains_little_is_left_alone():
    assert better_shares([1.0, 1.04], (50, 50), least=1) == ()
    assert better_shares([1.0, 2.0], (9, 9), least=1) == (12, 6)
    assert better_shares([1.0, 2.0], (12, 6), least=1) == ()
    assert better_shares([1.0, 1.0], (12, 6), least=1) == (9, 9)
    assert better_shares([0.0, 1.0], (8, 8), least=1) == ()
    assert 0.9 < GAIN < 1


@given(data=st.data(), replicas=st.integers(1, 4), shards=st.integers(1, 3), micro_batch=st.integers(1, 5))
def test_every_sample_is_taken_once_and_shards_of_a_replica_make_as_many_passes(data, replicas, shards, micro_batch):
    shares = tuple(data.draw(st.lists(st.integers(shards, 20), min_size=replicas, max_size=replicas)))
    ranks, total = replicas * shards, sum(shares)
    spans = [
        micro_batches(total, ranks=ranks, rank=rank, micro_batch=micro_batch, shares=shares) for rank in range(ranks)
    ]
    taken = [place for rank in spans for start, stop in rank for place in range(start, stop)]
    assert taken == list(range(total))
    for replica in range(replicas):
        own = spans[replica * shards : (replica + 1) * shards]
        assert len({len(each) for each in own}) == 1
        assert sum(stop - start for rank in own for start, stop in rank) == shares[replica]


@given(total=st.integers(8, 64), ranks=st.integers(1, 8))
def test_even_shares_are_what_ranks_take_without_any(total, ranks):
    assert rank_spans(total, ranks=ranks, shares=even_shares(total, ranks)) == rank_spans(total, ranks=ranks)


def plan_of(strategy, **changes):
    given = {
        "steps": 120, "global_batch": 16, "micro_batch": 2, "checkpoint": CheckpointPolicy(every=5, asynchronous=False),
        "recovery": Recovery(stragglers="rebalance"),
    }  # fmt: skip
    return replace(tiny_plan(strategy, **given | changes), program=ProgramSpec(task="model:Paced"))


def oracle(steps, global_batch):
    spec = spec_from_file_location("paced_task", CODE / "model.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return train(
        module.Paced(), options={"width": 8}, data=module.Points(0, 37), steps=steps, global_batch=global_batch
    )


def dealt(gang):
    return [each["shares"] for each in gang.events(0, "straggler_answered")]


@pytest.mark.parametrize("strategy", ["ddp", pytest.param("hsdp", marks=pytest.mark.slow)])
def test_uneven_work_trains_the_weights_of_one_process(make_gang, strategy):
    gang, plan = make_gang(CODE), plan_of(strategy)
    assert set(gang.run(plan, **SLOW)) == {0}, gang.log()
    assert dealt(gang), "the slow rank's replica was to get less"
    assert dealt(gang)[0][0] > dealt(gang)[0][-1] if strategy == "ddp" else dealt(gang)[0][0] < dealt(gang)[0][-1]
    steps = [each["step"] for each in gang.events(0, "straggler_answered")]
    assert all(step % plan.checkpoint.every == 0 for step in steps), "a deterministic plan deals at checkpoints"
    wanted, losses = oracle(plan.steps, plan.global_batch)
    found = stored_model(gang, gang.result().checkpoint)
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, atol=1e-5, rtol=0)
    assert [loss for _, loss in gang.result().jobs[0].losses] == pytest.approx(losses, rel=1e-5)


@pytest.mark.parametrize("deterministic", [True, False])
def test_plan_that_repeats_every_step_deals_again_at_a_checkpoint_alone(deterministic):
    window = [
        WindowTimes(work=dict.fromkeys(WORK, 0.0) | {"forward": each}, wait=0.0, samples=8) for each in (0.1, 0.3)
    ]
    pace = SimpleNamespace(recent=WindowRange([window] * LOOKBACKS[0]), slow={1: "slow"}, forget=lambda: None)
    plan, progress = replace(plan_of("ddp"), deterministic=deterministic), TrainingProgress(seed=1)
    dealer = WorkRebalancer(SimpleNamespace(plan=plan, rank=1), pace)
    dealer.decide(progress)
    assert dealer.rebalance(progress, saves=False) is not deterministic
    assert progress.shares == (() if deterministic else (12, 4))
    assert dealer.rebalance(progress, saves=True) is deterministic
    assert progress.shares == (12, 4)


@pytest.mark.parametrize(("answer", "unmet"), [("name", False), ("evict", True)])
def test_gang_whose_waits_are_not_measured_says_so_once_and_judges_no_one(answer, unmet):
    said = []
    events = SimpleNamespace(emit=lambda event, **fields: said.append((event, fields["reason"])))
    plan = plan_of("ddp", recovery=Recovery(stragglers=answer))
    checks = HealthChecks(SimpleNamespace(plan=plan, rank=0, device=torch.device("cuda"), events=events))
    for step in range(1, 40):
        checks.step_done(TrainingProgress(seed=1, step=step), {}, disturbed=False)
    ((event, reason),) = said
    assert event == "stragglers_not_judged"
    assert ("has no effect" in reason) is unmet


def test_deal_is_saved_and_a_checkpoint_without_one_is_even():
    numbers = TrainingProgress(seed=1, step=5, shares=(10, 6)).numbers()
    assert TrainingProgress.of(json.loads(json.dumps(numbers))).shares == (10, 6)
    del numbers["shares"]
    assert TrainingProgress.of(numbers).shares == ()


@pytest.mark.parametrize(
    ("strategy", "mesh", "why"),
    [
        ("fsdp", Mesh(dp_shard=2), "dp_replicate is 1"),
        ("pp", Mesh(pp=2, dp_replicate=2), "the schedule of a pipeline"),
        ("local_sgd", Mesh(dp_replicate=2), "with equal weights"),
    ],
)
def test_gang_whose_work_stays_even_says_once_why_when_a_rank_is_slow(strategy, mesh, why):
    said = []
    events = SimpleNamespace(emit=lambda event, **fields: said.append((event, fields)))
    plan = replace(plan_of("ddp"), strategy=strategy, mesh=mesh)
    context = SimpleNamespace(plan=plan, rank=0, data_rank=0, data_ranks=2, device=torch.device("cpu"), events=events)
    checks = HealthChecks(context)
    checks._step_rate = judged = SimpleNamespace(step_done=lambda *_, **__: True, slow={})
    checks.step_done(TrainingProgress(seed=1, step=10), {}, disturbed=False)
    assert said == [], "nobody is slow"
    judged.slow = {1: "slow"}
    for step in (20, 30):
        checks.step_done(TrainingProgress(seed=1, step=step), {}, disturbed=False)
    ((event, fields),) = said
    assert (event, fields["step"], fields["answer"]) == ("straggler_answered", 20, "rebalance")
    assert why in fields["reason"]
