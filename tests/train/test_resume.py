"""A training that was broken off against one that was not: same bits."""

import pytest
from tests.train.gang import KEY, MESHES, tiny_plan

from gangline.checkpoint.format.folder import CheckpointFolder
from gangline.checkpoint.format.stored_tensors import stored_digests
from gangline.spec.plan import CheckpointPolicy

MODEL = {"width": 8, "dropout": 0.2}
STEPS = 6
EVERY = CheckpointPolicy(every=3, asynchronous=False)


def finished(gang, plan, codes):
    assert codes == [0] * plan.world_size, gang.log()
    result = gang.result()
    return stored_digests(gang.store, result.checkpoint, KEY), {line["step"]: line["loss"] for line in gang.metrics()}


@pytest.mark.parametrize("strategy", [
    each if each in ("ddp", "fsdp") else pytest.param(each, marks=pytest.mark.slow)
    for each, mesh in MESHES.items() if mesh.world_size > 1
])  # fmt: skip
def test_killed_gang_resumes_to_the_bits_of_an_unbroken_one(make_gang, strategy):
    size = MESHES[strategy].world_size
    plan = tiny_plan(strategy, model=MODEL, steps=STEPS, micro_batch=8 // size, checkpoint=EVERY)
    whole = make_gang()
    unbroken = finished(whole, plan, whole.run(plan))
    gang = make_gang()
    codes = gang.run(plan, STRIKE="kill:1:5")
    assert codes == [137 if rank == 1 else 34 for rank in range(size)], gang.log()
    broken = finished(gang, plan, gang.run(plan))
    assert broken == unbroken
    assert [each["step"] for each in gang.events(event="resumed")] == [3]
    assert gang.events(event="ledger")[-1]["seconds"]["redone"] > 0


def test_sigterm_at_one_rank_saves_together_and_the_rest_follows_bit_for_bit(make_gang):
    plan = tiny_plan("ddp", model=MODEL, steps=STEPS)
    whole = make_gang()
    unbroken = finished(whole, plan, whole.run(plan))
    gang = make_gang()
    assert gang.run(plan, STRIKE="term:1:2") == [143, 143], gang.log()
    stopping = [gang.events(rank, "stopping")[0]["step"] for rank in (0, 1)]
    assert stopping[0] == stopping[1] <= 2 + 2
    assert finished(gang, plan, gang.run(plan)) == unbroken
    assert gang.events(event="resumed")[0]["step"] == stopping[0]


def test_other_world_size_continues_with_the_next_samples(make_gang):
    one = tiny_plan("none", steps=STEPS, micro_batch=8, checkpoint=EVERY)
    two = tiny_plan("ddp", steps=STEPS, checkpoint=EVERY)
    whole = make_gang()
    assert whole.run(one) == [0]
    gang = make_gang()
    assert gang.run(two, STRIKE="kill:0:5") == [137, 34]
    assert gang.run(one) == [0], gang.log()
    losses = [dict(each.result().jobs[0].losses) for each in (whole, gang)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_every_replica_draws_its_own_random_numbers(make_gang):
    gang = make_gang()
    assert gang.run(tiny_plan("ddp", model=MODEL, steps=2)) == [0, 0], gang.log()
    first, second = CheckpointFolder.open(gang.store, gang.result().checkpoint, KEY).state().ranks
    assert first["generators"]["torch"] != second["generators"]["torch"]
