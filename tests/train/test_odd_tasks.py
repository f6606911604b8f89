"""Tasks that are unusual train as on one rank; those that are wrong are refused in words that say what to do."""

import re
from dataclasses import replace

import pytest
from tests.train.gang import ROOT, tiny_plan
from tests.train.trained import gaps, trained

from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, ProgramSpec

MESHES = {
    "ddp": Mesh(dp_replicate=2), "fsdp": Mesh(dp_shard=2), "tp": Mesh(tp=2), "pp": Mesh(pp=2), "zero1": None,
}  # fmt: skip


def plan_of(task, strategy="none", **changes):
    policy = CheckpointPolicy(every=4, asynchronous=False)
    plan = tiny_plan("ddp" if strategy == "zero1" else "none", steps=4, micro_batch=2, checkpoint=policy, **changes)
    plan = replace(
        plan, program=ProgramSpec(task=f"odd:{task}"), strategy="zero1" if strategy == "zero1" else "explicit"
    )
    return plan if strategy == "zero1" else replace(plan, mesh=MESHES.get(strategy, Mesh()))


@pytest.fixture
def make_odd(make_gang):
    def make():
        gang = make_gang()
        (gang.code / "odd.py").write_text((ROOT / "tests" / "train" / "odd" / "odd.py").read_text())
        return gang

    return make


UNUSUAL = {
    "TwoGroups": ("ddp", "fsdp", "tp", "pp", "zero1"), "Frozen": ("ddp", "fsdp", "tp", "pp", "zero1"),
    "Tied": ("ddp", "fsdp", "tp"), "Narrow": ("ddp", "fsdp", "tp", "pp"), "Complex": ("ddp", "tp"),
}  # fmt: skip
QUICK = {("TwoGroups", "fsdp"), ("Frozen", "ddp")}


@pytest.mark.parametrize(
    ("task", "strategy"),
    [
        pytest.param(task, strategy, marks=[] if (task, strategy) in QUICK else [pytest.mark.slow])
        for task, strategies in UNUSUAL.items()
        for strategy in strategies
    ],
)
def test_unusual_task_trains_as_on_one_rank(make_odd, task, strategy):
    found, wanted = (trained(make_odd(), plan_of(task, each)) for each in (strategy, "none"))
    assert max(gaps(found, wanted)) <= (1e-2 if task == "Narrow" else 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "tp", "zero1"])
def test_whole_numbers_in_buffers_stay_whole(make_odd, strategy):
    weights, _ = trained(make_odd(), plan_of("Counting", strategy))
    assert int(weights["passes"]) == 4 * plan_of("Counting", strategy).accumulation
    assert bool(weights["mask"].all())


REFUSED = {
    "EndsEarly": (10, r"len\(data\) is 37, and data\[\d+\] raised IndexError: there are twenty"),
    "Ragged": (10, "cannot be collated: 'extra' has the shapes"),
    "Closure": (10, "LBFGS.step wants a closure"),
    "NoOptimizer": (10, "wanted a torch.optim.Optimizer, found NoneType"),
    "AllFrozen": (10, "no parameter of OddNet wants gradients"),
    "Detached": (10, "Loss.total depends on no parameter that requires gradients"),
    "Plain": (10, "Loss.total must be a scalar tensor, found float"),
    "Synced": (10, "norm is a SyncBatchNorm, which synchronizes all ranks"),
    "EvaluationFails": (30, "the measure's own mistake"),
    "EvaluationIsNumber": (10, r"wanted accuracy as \(sum, weight\), two numbers, of a batch; .*float"),
    "EvaluationChanges": (10, "wanted the same names for every batch, found"),
    "NotFiniteLater": (31, r"\['eval_loss'\] over the holdout split are not finite"),
}
OFTEN = {("Synced", "ddp"), ("Ragged", "fsdp"), ("Closure", "ddp"), ("Detached", "fsdp"),
         ("EvaluationIsNumber", "ddp"), ("EvaluationChanges", "ddp")}  # fmt: skip


@pytest.mark.parametrize(
    ("task", "strategy"),
    [
        pytest.param(task, strategy, marks=[] if (task, strategy) in OFTEN else [pytest.mark.slow])
        for task in REFUSED
        for strategy in MESHES
    ],
)
def test_wrong_task_is_refused_in_words(make_odd, task, strategy):
    """Whoever sees it first says so; a peer may only see that it left."""
    gang, (code, said) = make_odd(), REFUSED[task]
    codes = gang.run(plan_of(task, strategy))
    assert code in codes, gang.log()
    assert {*codes} <= {code, 34}
    assert any(re.search(said, gang.log(rank)) for rank in (0, 1)), gang.log()


def test_two_precisions_in_one_block_are_refused_where_it_is_sharded(make_odd):
    gang = make_odd()
    assert gang.run(plan_of("Complex", "fsdp")) == [10, 10], gang.log()
    assert "of the same block complex64: what is sharded" in gang.log()


@pytest.mark.parametrize("strategy", ["ddp", pytest.param("fsdp", marks=pytest.mark.slow)])
def test_gradient_that_is_not_finite_is_named_by_the_ranks_that_have_it(make_odd, strategy):
    """Of the shards of FSDP the first alone has it."""
    gang = make_odd()
    muon = {"rule": "muon", "exclude": ["first", "last"]}
    assert gang.run(plan_of("NanGradient", strategy, optimizer=muon)) == [31, 31], gang.log()
    reasons = [gang.events(rank, "non_finite")[0]["reason"] for rank in (0, 1)]
    names = [re.findall("gradients of (.*) are not finite", reason) for reason in reasons]
    assert names == [["layers.1.outer.weight"], ["layers.1.outer.weight"] if strategy == "ddp" else []]
