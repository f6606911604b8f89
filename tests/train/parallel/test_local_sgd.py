"""Replicas that drift between outer steps, against the same written slowly in one process."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles import drifting
from tests.train.gang import KEY, load_tiny, stored_model, tiny_plan
from tests.train.trained import trained

from gangline.checkpoint.format.stored_tensors import stored_digests
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Compression, ProgramSpec
from gangline.train.parallel.local_sgd import is_due

STEPS, EVERY = 8, 3
MODEL = {"width": 8, "layers": 2}
TASKS = load_tiny()
TWO, SHARDED = Mesh(dp_replicate=2), Mesh(dp_replicate=2, dp_shard=2)
SYNCHRONOUS_SAVES = CheckpointPolicy(every=2, asynchronous=False)


def plan_of(strategy, mesh=TWO, *, every=EVERY, outer_lr=0.7, momentum=0.9, **changes):
    outer = {"outer_lr": outer_lr, "outer_momentum": momentum} if strategy == "diloco" else {}
    given_ = {"model": MODEL, "steps": STEPS, "micro_batch": 2, "checkpoint": SYNCHRONOUS_SAVES}
    compression = Compression(outer_steps=every, **outer)
    return replace(tiny_plan("ddp", **given_ | changes), strategy=strategy, mesh=mesh, compression=compression)


@cache
def slowly(strategy, *, every=EVERY, steps=STEPS):
    return drifting.train(
        TASKS.Tiny(), options=MODEL, data=TASKS.Points(0, 37), steps=steps, global_batch=8, replicas=2, every=every,
        inner=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        outer=(0.7, 0.9) if strategy == "diloco" else None,
    )  # fmt: skip


def assert_close(found, wanted, tolerance=1e-6):
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, atol=tolerance, rtol=0, msg=lambda text, n=name: f"{n}: {text}")


def proven(name, mesh, marks=()):
    mark = pytest.mark.proves(name, oracle="written slowly in one process", gate="1e-6")
    return pytest.param(name, mesh, marks=[mark, *marks])


PROVEN = [
    proven("local_sgd", TWO), proven("diloco", SHARDED),
    proven("local_sgd", SHARDED, [pytest.mark.slow]), proven("diloco", TWO, [pytest.mark.slow]),
]  # fmt: skip


@pytest.mark.parametrize(("strategy", "mesh"), PROVEN)
def test_replicas_train_the_weights_of_the_slow_version(make_gang, reached, strategy, mesh):
    wanted, losses = slowly(strategy)
    gang = make_gang()
    model, found = trained(gang, plan_of(strategy, mesh))
    assert_close(model, wanted)
    reached(max(float((model[name] - tensor).abs().max()) for name, tensor in wanted.items()))
    assert found == pytest.approx(losses, rel=1e-5)
    assert [(each["step"], each["forced"]) for each in gang.events(event="outer_step")] == [
        (3, False), (6, False), (8, True),
    ]  # fmt: skip


@pytest.mark.parametrize("strategy", [pytest.param("local_sgd", marks=pytest.mark.slow), "diloco"])
def test_outer_step_after_every_step_of_sgd_is_data_parallel(make_gang, strategy):
    """Rate 1, no momentum; also with weights that differ from sample to sample."""
    sgd = {"elementwise": {"rule": "sgd", "lr": 0.05, "momentum": 0.9}}
    drifted = trained(make_gang(), plan_of(strategy, every=1, outer_lr=1.0, momentum=0.0, optimizer=sgd))
    gang = make_gang()
    wanted = trained(gang, tiny_plan("ddp", model=MODEL, steps=STEPS, micro_batch=2, optimizer=sgd))
    assert_close(drifted[0], wanted[0])
    assert drifted[1] == pytest.approx(wanted[1], rel=1e-5)


def test_local_sgd_averages_as_torch_does():
    from tests.train.parallel.compress.ranks import on_ranks
    from tests.train.periodic import ours_and_torchs

    for ours, theirs in on_ranks(2, ours_and_torchs, 5, 2):
        assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("strategy", "mesh"), [pytest.param("local_sgd", TWO, marks=pytest.mark.slow), ("diloco", SHARDED)]
)
@pytest.mark.long
def test_killed_gang_resumes_to_the_bits_of_an_unbroken_one(make_gang, strategy, mesh):
    """Saves wait for outer steps, and each replica finds its own optimizer again."""
    plan = plan_of(strategy, mesh, micro_batch=4)
    whole, gang = make_gang(), make_gang()
    assert set(whole.run(plan)) == {0}, whole.log()
    assert 0 not in gang.run(plan, STRIKE="kill:1:5"), gang.log()
    assert set(gang.run(plan)) == {0}, gang.log()
    assert [each["step"] for each in gang.events(event="resumed")] == [3]
    assert [each["step"] for each in whole.events(event="saved")] == [3, 6, 8]
    digests = [stored_digests(each.store, each.result().checkpoint, KEY) for each in (whole, gang)]
    assert digests[1] == digests[0]


def test_stop_brings_replicas_together_before_they_save(make_gang):
    gang = make_gang()
    plan = plan_of("diloco", every=100, micro_batch=4)
    assert gang.run(plan, STRIKE="term:1:2") == [143, 143], gang.log()
    (stopped,) = gang.events(event="stopping")
    assert [(e["step"], e["forced"]) for e in gang.events(event="outer_step")] == [(stopped["step"], True)]
    assert [each["step"] for each in gang.events(event="saved")] == [stopped["step"]]


def test_evaluation_waits_until_replicas_are_together(make_gang):
    gang = make_gang()
    trained(gang, plan_of("local_sgd", evaluate_every=2))
    assert [each["step"] for each in gang.events(event="evaluated")] == [3, 6, 8]


@pytest.mark.parametrize(("mode", "code"), [pytest.param("stop", 31, marks=pytest.mark.slow), ("skip", 0)])
def test_bad_number_in_one_replica_is_judged_alike_by_all(make_gang, mode, code):
    plan = plan_of("diloco", micro_batch=4)
    plan = replace(plan, recovery=replace(plan.recovery, non_finite=mode))
    gang = make_gang()
    assert gang.run(plan, STRIKE="nan:1:2") == [code, code], gang.log()
    answers = [[(e["step"], e["answer"]) for e in gang.events(rank, "non_finite")] for rank in (0, 1)]
    assert answers == [[(2, mode)]] * 2


@pytest.mark.parametrize("kind", ["int8", pytest.param("bf16", marks=pytest.mark.slow)])
def test_diloco_sends_its_change_compressed(make_gang, kind):
    wanted, losses = slowly("diloco")
    plan = plan_of("diloco")
    model, found = trained(make_gang(), replace(plan, compression=replace(plan.compression, kind=kind)))
    assert found == pytest.approx(losses, rel=1e-2)
    assert any(not torch.equal(model[name], wanted[name]) for name in wanted)


PROGRAM = """
from gangline.train import Loss, Session, parallelize
from model import Net, Points

with Session() as session:
    model = parallelize(Net(), session)
    optimizer = session.optimizer(model)
    for batch in session.batches(Points(0, 37)):
        errors = (model(batch["x"]) - batch["y"]) ** 2 * batch["weight"]
        session.backward(Loss(total=errors.sum(), weight=batch["weight"].sum()))
        session.step(optimizer)
"""


def test_program_of_its_own_drifts_and_comes_together_as_a_task_does(make_gang):
    sgd = {"elementwise": {"rule": "sgd", "lr": 0.05}}
    program = {"program": ProgramSpec(command=("python", "train.py")), "optimizer": sgd, "micro_batch": 4}
    found = []
    for plan in (
        plan_of("diloco", every=1, outer_lr=1.0, momentum=0.0, **program),
        tiny_plan("ddp", steps=STEPS, **program),
    ):
        gang = make_gang()
        (gang.code / "train.py").write_text(PROGRAM)
        assert gang.run_program(plan) == [0, 0], gang.log()
        found.append(stored_model(gang, gang.result().checkpoint))
    assert_close(*found)


def test_one_replica_is_refused(make_gang):
    gang = make_gang()
    plan = plan_of("diloco", Mesh(dp_shard=2), micro_batch=4)
    assert gang.run(plan) == [10, 10]
    assert "dp_replicate of 2 or more, found 1" in gang.log()


@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 12))
def test_what_waits_for_outer_steps_happens_once_for_each_multiple_passed(step, every, outer):
    due = [each for each in range(1, step * outer + 1) if is_due(each, every=every, outer=outer)]
    assert all(each % outer == 0 for each in due)
    wanted = sorted({-(-multiple // outer) * outer for multiple in range(every, step * outer + 1, every)})
    assert due == [each for each in wanted if each <= step * outer]
