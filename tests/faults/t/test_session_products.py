"""Programs with a Session, struck: their own loop ends and goes on as the runtime's would, under each strategy.

A rank is killed, asked to stop, or computes what is not finite; a plan ends early and goes on.
"""

from dataclasses import replace

import pytest
from tests.faults.t.taken import GATE, assert_samples, assert_trained
from tests.train.gang import stored_model
from tests.train.parallel.long import long_plan
from tests.train.trained import gaps, left_by

from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, ProgramSpec, Recovery

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]
STEPS, BATCH, EVERY = 6, 8, 2
MESHES = {"ddp": Mesh(dp_replicate=2), "fsdp": Mesh(dp_shard=2), "tp x ddp": Mesh(dp_replicate=2, tp=2)}


def each_strategy(*quick):
    """All of them; `quick` ones in the default run."""
    return pytest.mark.parametrize(
        "name", [pytest.param(name, marks=[] if name in quick else [pytest.mark.slow]) for name in MESHES]
    )


def plan_of(name, **changes):
    given = {
        "program": ProgramSpec(command=("python", "train.py")), "steps": STEPS, "micro_batch": 2,
        "checkpoint": CheckpointPolicy(every=EVERY, asynchronous=False),
    }  # fmt: skip
    return long_plan(MESHES[name], **given | changes)


@pytest.mark.long
@each_strategy("tp x ddp")
def test_killed_rank_costs_the_steps_since_the_checkpoint_and_nothing_else(make_faulty, calm, name):
    gang, plan = make_faulty(), plan_of(name)
    faulty = plan.world_size - 1
    codes = gang.run_program(plan, STRIKE=f"kill:{faulty}:4")
    assert codes == [34] * faulty + [-9], gang.log()
    assert set(gang.run_program(plan)) == {0}, gang.log()
    assert [each["step"] for each in gang.events(event="resumed")] == [2]
    assert_trained(gang, plan, calm(plan))


@each_strategy("fsdp")
def test_sigterm_at_one_rank_saves_at_a_step_boundary(make_faulty, calm, name):
    gang, plan = make_faulty(), plan_of(name)
    assert set(gang.run_program(plan, STRIKE="term:1:3")) == {143}, gang.log()
    stopped = {gang.events(each, "stopping")[0]["step"] for each in range(plan.world_size)}
    assert len(stopped) == 1, "all leave after the same step"
    assert stopped <= {3, 4}
    assert {gang.events(event="saved")[-1]["step"]} == stopped
    assert set(gang.run_program(plan)) == {0}, gang.log()
    assert {each["step"] for each in gang.events(event="resumed")} == stopped
    assert_trained(gang, plan, calm(plan))


@pytest.mark.long
@each_strategy("fsdp")
def test_plan_that_ends_early_continues_where_it_ended(make_faulty, calm, name):
    gang, plan = make_faulty(), plan_of(name)
    assert set(gang.run_program(replace(plan, stop_at=3))) == {0}, gang.log()
    assert gang.result().final_step == 3
    assert set(gang.run_program(plan)) == {0}, gang.log()
    assert [each["step"] for each in gang.events(event="resumed")] == [3]
    assert_trained(gang, plan, calm(plan))


@each_strategy("tp x ddp")
def test_number_that_is_not_finite_stops_all_in_that_step_and_is_not_saved(make_faulty, name):
    gang, plan = make_faulty(), plan_of(name)
    assert set(gang.run_program(plan, STRIKE="nan:1:4")) == {31}, gang.log()
    for rank in range(plan.world_size):
        assert [(each["step"], each["answer"]) for each in gang.events(rank, "non_finite")] == [(4, "stop")]
    assert [each["step"] for each in gang.events(event="saved")] == [2]
    assert all(tensor.isfinite().all() for tensor in stored_model(gang, gang.events(event="saved")[-1]["key"]).values())


@pytest.mark.parametrize("answer", ["rollback", pytest.param("skip", marks=pytest.mark.slow)])
@each_strategy("ddp")
def test_bad_step_is_left_out_as_one_rank_alone_would(make_faulty, name, answer):
    gang, plan = make_faulty(), plan_of(name, recovery=Recovery(non_finite=answer))
    assert set(gang.run_program(plan, STRIKE="nan:1:4")) == {0}, gang.log()
    twin = make_faulty()
    assert twin.run_program(replace(plan, mesh=Mesh()), STRIKE="nan:0:4") == [0], twin.log()
    assert max(gaps(left_by(gang), left_by(twin))) <= GATE
    steps = STEPS if answer == "rollback" else STEPS - 1
    assert_samples(gang, plan.world_size, trained=steps * BATCH, skipped=BATCH)
