"""Compression where it works: in DDP's buckets, between the replicas of shards, in checkpoints of whole gangs."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import pytest
import torch
from tests.oracles.one_process import train
from tests.train.gang import KEY, load_tiny, tiny_plan
from tests.train.trained import trained
from torch.nn.parallel import DistributedDataParallel

from gangline.checkpoint.format.folder import CheckpointFolder
from gangline.checkpoint.format.stored_tensors import stored_digests
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Compression, Schedule
from gangline.train.parallel.compress.factory import ddp_hook

pytestmark = pytest.mark.long

STEPS = 10
MODEL = {"width": 16, "layers": 2}
TASKS = load_tiny()
EVERY = CheckpointPolicy(every=3, asynchronous=False)


@cache
def oracle():
    return train(TASKS.Tiny(), options=MODEL, data=TASKS.Points(0, 37), steps=STEPS, global_batch=8)


def plan_of(strategy, kind, **changes):
    given = {"rank": 2, "ratio": 0.2} if kind in ("powersgd", "topk") else {}
    compression = Compression(kind=kind, **given)
    return tiny_plan(strategy, model=MODEL, steps=STEPS, compression=compression, micro_batch=2, **changes)


GAPS = {"fp16": 2e-3, "bf16": 2e-2, "int8": 2e-2, "powersgd": 0.15, "topk": 0.3}
"""Largest share by which a loss of the first ten steps may differ from the uncompressed one."""


def slow_but(few, case):
    return () if case in few else (pytest.mark.slow,)


CASES = [(strategy, kind) for strategy in ("ddp", "hsdp") for kind in GAPS]
QUICK = [("ddp", "fp16"), ("ddp", "int8"), ("ddp", "topk"), ("hsdp", "bf16"), ("hsdp", "powersgd")]
QUICK_RESUMES = [("ddp", "powersgd"), ("hsdp", "topk")]
WITH_MEMORY = [case for case in CASES if case[1] in ("int8", "topk", "powersgd")]


def nearness(kind):
    oracle = "one process, losses of 10 steps"
    return pytest.mark.proves(f"compression: {kind}", oracle=oracle, gate=f"{GAPS[kind]:g} of a loss")


@pytest.mark.parametrize(
    ("strategy", "kind"), [pytest.param(*case, marks=[*slow_but(QUICK, case), nearness(case[1])]) for case in CASES]
)
def test_compressed_training_stays_near_one_process(make_gang, reached, strategy, kind):
    _, exact = oracle()
    gang = make_gang()
    model, losses = trained(gang, plan_of(strategy, kind))
    assert losses == pytest.approx(exact, rel=GAPS[kind])
    reached(max(abs(found / wanted - 1) for found, wanted in zip(losses, exact, strict=True)))
    assert losses[5:] != exact[5:], "it does compress"
    assert all(torch.isfinite(each).all() for each in model.values())
    assert "Warning" not in gang.log()


@pytest.mark.parametrize(
    ("strategy", "kind"), [pytest.param(*case, marks=slow_but(QUICK_RESUMES, case)) for case in WITH_MEMORY]
)
def test_killed_gang_resumes_with_its_memory_to_the_bits_of_an_unbroken_one(make_gang, strategy, kind):
    plan = replace(plan_of(strategy, kind), steps=6, checkpoint=EVERY, micro_batch=4 if strategy == "ddp" else 2)
    whole, gang = make_gang(), make_gang()
    assert set(whole.run(plan)) == {0}, whole.log()
    assert 0 not in gang.run(plan, STRIKE="kill:1:5"), gang.log()
    assert set(gang.run(plan)) == {0}, gang.log()
    assert [each["step"] for each in gang.events(event="resumed")] == [3]
    digests = [stored_digests(each.store, each.result().checkpoint, KEY) for each in (whole, gang)]
    assert digests[1] == digests[0]
    index = CheckpointFolder.open(gang.store, gang.result().checkpoint, KEY).index()
    assert len([name for name in index.tensors if "compression/residual" in name]) >= plan.world_size


def test_ddp_takes_our_hook_where_there_is_no_cuda(monkeypatch):
    """It judges by a hook's name what the machine can do, and by a parameter's name what is a hook."""

    def refuse(kind, words):
        raise kind(words)

    monkeypatch.setattr(torch.version, "cuda", None)
    hook = ddp_hook(None, torch.nn.Linear(1, 1))
    DistributedDataParallel._check_comm_hook(SimpleNamespace(_log_and_throw=refuse), hook)


def test_approximations_begin_when_the_learning_rate_has_warmed_up(make_gang):
    schedule = Schedule(warmup_steps=4)
    _, whole = trained(make_gang(), plan_of("ddp", "none", schedule=schedule))
    _, thin = trained(make_gang(), plan_of("ddp", "powersgd", schedule=schedule))
    assert thin[:5] == pytest.approx(whole[:5], rel=1e-6)
    assert abs(thin[6] / whole[6] - 1) > 1e-5


def test_memory_is_dropped_with_a_note_at_another_world_size(make_gang):
    plan = replace(plan_of("ddp", "int8"), steps=6, checkpoint=EVERY, micro_batch=4)
    gang = make_gang()
    assert 0 not in gang.run(plan, STRIKE="kill:1:5")
    wider = replace(plan, mesh=Mesh(dp_replicate=4), micro_batch=2)
    assert set(gang.run(wider)) == {0}, gang.log()
    notes = [each["reason"] for each in gang.events(event="checkpoint_note")]
    assert any("belong to another number of ranks" in each for each in notes), notes


def test_compression_kept_out_of_the_way_leaves_the_bits_of_native_hsdp(make_gang):
    """`fully_shard` over the shards and our average over the replicas, against its own two-dimensional mesh."""
    from tests.train.parallel.compress.native import native_and_ours
    from tests.train.parallel.compress.ranks import on_ranks

    for native, ours, orders in on_ranks(4, native_and_ours):
        assert native.keys() == ours.keys()
        for name, grad in native.items():
            assert torch.equal(grad, ours[name]), name
        assert orders[0] == orders[1], "gradients follow each other as the layout says"
