"""A task that is struck from within, on real ranks: the fault comes at its step, once, and nothing else changes."""

import json

import pytest
from tests.train.gang import KEY, tiny_plan

from gangline.checkpoint.format.manifest import list_checkpoints, verify_manifest
from gangline.spec.plan import Recovery
from gangline.train.rank.faulty_task import MARK, FaultOrder

STEPS = 8


def run(gang, kind, *, rank=1, step=4, recovery=None):
    plan = tiny_plan("ddp", steps=STEPS, recovery=recovery or Recovery())
    order = FaultOrder(kind=kind, rank=rank, step=step)
    return gang.run(plan, GANGLINE_STRIKE=order.to_json()), plan


def saved_steps(gang, plan):
    """Of checkpoints in the store; 0: the untrained model."""
    return [0, *(each.step for each in list_checkpoints(gang.store, f"{plan.run_prefix}/checkpoints"))]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_poisoned_batch_ends_the_gang_in_that_step_and_nothing_of_it_is_saved(make_gang, rank):
    gang = make_gang()
    codes, plan = run(gang, "poison", rank=rank)
    assert codes == [31, 31], gang.log()
    assert [each["step"] for each in gang.events(event="non_finite")] == [5]
    assert max(saved_steps(gang, plan)) < 5
    mark = json.loads((gang.home / MARK).read_bytes())
    assert (mark["step"], mark["by"]) == (4, rank)


def test_a_rollback_leaves_the_bad_samples_out_and_is_not_struck_again(make_gang):
    gang = make_gang()
    codes, plan = run(gang, "poison", recovery=Recovery(non_finite="rollback"))
    assert codes == [0, 0], gang.log()
    (bad,) = gang.events(event="non_finite")
    batch = plan.global_batch
    assert (bad["step"], bad["answer"], bad["samples"]) == (5, "rollback", [4 * batch, 5 * batch])
    assert all(each["span"] != bad["samples"] for each in gang.events(event="step"))
    newest = list_checkpoints(gang.store, f"{plan.run_prefix}/checkpoints")[0]
    assert verify_manifest(gang.store.get(newest.manifest_key).data, KEY).plan_sha256 == plan.digest


def test_a_rank_without_memory_ends_as_such_and_its_peer_as_one_that_lost_a_peer(make_gang):
    gang = make_gang()
    codes, plan = run(gang, "oom")
    assert codes == [34, 32], gang.log(1)
    assert "can't allocate memory" in gang.events(1, event="done")[-1]["reason"]
    assert max(saved_steps(gang, plan)) <= 4


def test_a_task_whose_fault_is_not_due_trains_as_the_users_own(make_gang):
    own, wrapped = make_gang(), make_gang()
    plan = tiny_plan("ddp", steps=STEPS)
    assert own.run(plan) == [0, 0], own.log()
    assert run(wrapped, "poison", step=STEPS + 5)[0] == [0, 0], wrapped.log()
    assert wrapped.result().jobs == own.result().jobs
    assert not (wrapped.home / MARK).exists()
