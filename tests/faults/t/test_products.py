"""Products of strategies, struck: whatever the mesh, a gang ends with the right number and loses nothing.

Four ranks each: a rank is killed, asked to stop, or computes what is not finite; a plan ends early and goes on.
"""

from dataclasses import replace

import pytest
from tests.faults.t.taken import GATE, assert_samples, assert_trained
from tests.train.gang import stored_model
from tests.train.parallel.long import long_plan
from tests.train.trained import gaps, left_by

from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Compression, ProgramSpec, Recovery

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]
STEPS, BATCH, EVERY = 6, 8, 2
REPLICAS_OF_SHARDS = Mesh(dp_replicate=2, dp_shard=2)
MESHES = {
    "cp x tp": Mesh(cp=2, tp=2), "fsdp x tp": Mesh(dp_shard=2, tp=2), "pp x ddp": Mesh(pp=2, dp_replicate=2),
    "ep": Mesh(dp_shard=4, ep=2), "hsdp": REPLICAS_OF_SHARDS, "local_sgd": REPLICAS_OF_SHARDS,
    "diloco": REPLICAS_OF_SHARDS,
}  # fmt: skip
DRIFTS = {"local_sgd": Compression(outer_steps=EVERY), "diloco": Compression(outer_steps=EVERY, outer_lr=0.7)}


def each_product(*quick):
    """All of them; `quick` ones in the default run."""
    return pytest.mark.parametrize(
        "name", [pytest.param(name, marks=[] if name in quick else [pytest.mark.slow]) for name in MESHES]
    )


def plan_of(name, **changes):
    changes = {"micro_batch": 2, "checkpoint": CheckpointPolicy(every=EVERY, asynchronous=False)} | changes
    task = "FaultyExperts" if name == "ep" else "FaultyLong"
    plan = long_plan(MESHES[name], task, steps=STEPS, **changes)
    plan = replace(plan, program=ProgramSpec(task=f"faulty_code:{task}"))
    return replace(plan, strategy=name, compression=DRIFTS[name]) if name in DRIFTS else plan


def alone(plan):
    """The same on one rank."""
    return replace(plan, mesh=Mesh(), strategy="explicit")


@pytest.mark.parametrize("rank", [0, pytest.param(2, marks=pytest.mark.slow)])
@each_product("pp x ddp")
def test_killed_rank_costs_the_steps_since_the_checkpoint_and_nothing_else(make_faulty, calm, name, rank):
    gang, plan = make_faulty(), plan_of(name)
    codes = gang.run(plan, STRIKE=f"kill:{rank}:4")
    assert codes == [137 if each == rank else 34 for each in range(4)], gang.log()
    assert gang.run(plan) == [0] * 4, gang.log()
    assert [each["step"] for each in gang.events(event="resumed")] == [2]
    assert_trained(gang, plan, calm(plan))


@pytest.mark.parametrize("rank", [3, pytest.param(0, marks=pytest.mark.slow)])
@each_product("pp x ddp")
def test_sigterm_at_one_rank_saves_at_a_step_boundary(make_faulty, calm, name, rank):
    gang, plan = make_faulty(), plan_of(name)
    step = EVERY * 2 if name in DRIFTS else 3  # elsewhere replicas that drift come together before their time
    assert gang.run(plan, STRIKE=f"term:{rank}:{step}") == [143] * 4, gang.log()
    stopped = {gang.events(each, "stopping")[0]["step"] for each in range(4)}
    assert len(stopped) == 1, "all leave after the same step"
    assert stopped <= {step, step + 1}
    assert {gang.events(event="saved")[-1]["step"]} == stopped
    assert gang.run(plan) == [0] * 4, gang.log()
    assert {each["step"] for each in gang.events(event="resumed")} == stopped
    assert_trained(gang, plan, calm(plan))


@each_product("diloco")
def test_plan_that_ends_early_continues_where_it_ended(make_faulty, calm, name):
    gang, plan = make_faulty(), plan_of(name)
    assert gang.run(replace(plan, stop_at=4)) == [0] * 4, gang.log()
    assert gang.result().final_step == 4
    assert gang.run(plan) == [0] * 4, gang.log()
    assert [each["step"] for each in gang.events(event="resumed")] == [4]
    assert_trained(gang, plan, calm(plan))


@each_product("hsdp")
def test_number_that_is_not_finite_stops_all_in_that_step_and_is_not_saved(make_faulty, name):
    gang, plan = make_faulty(), plan_of(name)
    assert gang.run(plan, STRIKE="nan:1:4") == [31] * 4, gang.log()
    for rank in range(4):
        assert [(each["step"], each["answer"]) for each in gang.events(rank, "non_finite")] == [(4, "stop")]
    assert [each["step"] for each in gang.events(event="saved")] == [2]
    assert all(tensor.isfinite().all() for tensor in stored_model(gang, gang.events(event="saved")[-1]["key"]).values())


@pytest.mark.parametrize("answer", ["rollback", pytest.param("skip", marks=pytest.mark.slow)])
@each_product("ep")
def test_bad_step_is_left_out_as_one_rank_alone_would(make_faulty, name, answer):
    """Replicas that drift have no such twin: there it must not matter who was struck."""
    gang, plan = make_faulty(), plan_of(name, recovery=Recovery(non_finite=answer))
    assert gang.run(plan, STRIKE="nan:1:4") == [0] * 4, gang.log()
    for rank in range(4):
        assert [(each["step"], each["answer"]) for each in gang.events(rank, "non_finite")] == [(4, answer)]
    twin = make_faulty()
    codes = twin.run(plan, STRIKE="nan:2:4") if name in DRIFTS else twin.run(alone(plan), STRIKE="nan:0:4")
    assert set(codes) == {0}, twin.log()
    assert max(gaps(left_by(gang), left_by(twin))) <= GATE
    steps = STEPS if answer == "rollback" else STEPS - 1
    assert_samples(gang, 4, trained=steps * BATCH, skipped=BATCH)
