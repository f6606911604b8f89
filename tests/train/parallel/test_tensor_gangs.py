"""Gangs whose ranks share each module: killed, proven under other plans, poisoned, and as programs of their own."""

from dataclasses import replace

import pytest
from tests.train.gang import KEY, Gang, tiny_plan

from gangline.checkpoint.format.folder import CheckpointFolder
from gangline.checkpoint.format.stored_tensors import stored_digests
from gangline.errors import NonFiniteError
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Job, ProgramSpec, Recovery

pytestmark = pytest.mark.long

MODEL = {"width": 8, "dropout": 0.2}
EVERY = CheckpointPolicy(every=3, asynchronous=False)


def cut_plan(mesh=None, **changes):
    given = {"model": MODEL, "checkpoint": EVERY, "micro_batch": 8}
    return replace(tiny_plan("none", **given | changes), strategy="tp", mesh=mesh or Mesh(tp=2))


def finish(gang, plan, **environ):
    assert gang.run(plan, **environ) == [0] * plan.world_size, gang.log()
    return gang.result()


def test_killed_peer_comes_back_to_the_bits_of_an_unbroken_training(make_gang):
    whole, gang = make_gang(), make_gang()
    unbroken = finish(whole, cut_plan())
    assert gang.run(cut_plan(), STRIKE="kill:1:5") == [34, 137], gang.log()
    resumed = finish(gang, cut_plan())
    assert [each["step"] for each in gang.events(event="resumed")] == [3]
    assert resumed.jobs[0].losses == unbroken.jobs[0].losses
    ends = [stored_digests(each.store, each.result().checkpoint, KEY) for each in (gang, whole)]
    assert ends[0] == ends[1]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(cut_plan(), tiny_plan("fsdp"), id="tp to fsdp"),
        pytest.param(tiny_plan("ddp"), cut_plan(), id="ddp to tp", marks=pytest.mark.slow),
        pytest.param(
            cut_plan(Mesh(dp_shard=2, tp=2), micro_batch=4),
            tiny_plan("none"),
            id="dp_shard x tp to none",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_checkpoint_opens_under_another_plan_with_equal_bits_and_losses(make_gang, warm, first, second):
    first, second = (replace(each, model={"width": 8}) for each in (first, second))
    gang = make_gang()
    trained = finish(gang, first)
    other = Gang(gang.home / "prove", warm, gang.code)
    other.store_url, other.store = gang.store_url, gang.store
    jobs = (Job(seed=1, train=False, checkpoint=trained.checkpoint), Job(seed=1, steps=3))
    proven = finish(other, replace(second, role="prove", jobs=jobs))
    assert proven.digests.total == proven.digests.equal > 0
    assert dict(proven.jobs[0].losses) == pytest.approx(dict(trained.jobs[0].losses[:3]), rel=1e-5)


def test_peers_continue_to_drop_alike_where_others_saved_their_generators(make_gang):
    gang = make_gang()
    assert 137 in gang.run(tiny_plan("ddp", model=MODEL, checkpoint=EVERY), STRIKE="kill:0:5"), gang.log()
    last = finish(gang, cut_plan()).checkpoint
    assert [each["step"] for each in gang.events(1, "reseeded")] == [3]
    first, second = CheckpointFolder.open(gang.store, last, KEY).state().ranks
    assert first["generators"]["python"] == second["generators"]["python"], "nobody drew of it: it shows the seed"


def test_all_peers_judge_a_poisoned_step_alike(make_gang):
    """The peer struck is not the one whose loss counts."""
    gang = make_gang()
    assert gang.run(cut_plan(), STRIKE="nan:1:2") == [NonFiniteError.exit_code] * 2
    skipping = make_gang()
    finish(skipping, cut_plan(recovery=Recovery(non_finite="skip")), STRIKE="nan:1:2")
    for rank in (0, 1):
        assert [each["step"] for each in skipping.events(rank, "non_finite")] == [2]


PROGRAM = """
from gangline.train import Loss, Session, parallelize
from model import Net, Points, Tiny

with Session() as session:
    model = parallelize(Net(), session, hints=Tiny.hints)
    optimizer = session.optimizer(model)
    for batch in session.batches(Points(0, 37)):
        errors = (model(batch["x"]) - batch["y"]) ** 2 * batch["weight"]
        session.backward(Loss(total=errors.sum(), weight=batch["weight"].sum()))
        session.step(optimizer)
"""


def test_program_with_hints_trains_cut_modules_to_the_losses_of_whole_ones(make_gang):
    found = []
    for mesh in (Mesh(), Mesh(dp_replicate=2, tp=2)):
        gang = make_gang()
        (gang.code / "train.py").write_text(PROGRAM)
        plan = replace(
            cut_plan(mesh, micro_batch=4, program=ProgramSpec(command=("python", "train.py"))), strategy="explicit"
        )
        assert gang.run_program(plan) == [0] * plan.world_size, gang.log()
        found.append([loss for _, loss in gang.result().jobs[0].losses])
    assert found[1] == pytest.approx(found[0], rel=1e-5)
