"""What else a training in stages does: evaluate, resume, open and prove checkpoints, book its idle time, refuse."""

from dataclasses import replace

import pytest
import torch
from tests.train.gang import KEY, ROOT, Gang, make_plan, sample_text, stored_model
from tests.train.parallel.deep import CODE, MODEL, TASKS, deep_plan

from gangline.checkpoint.format.stored_tensors import stored_digests
from gangline.errors import ConfigError
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Compression, Job, Memory, ProgramSpec, Recovery
from gangline.train.parallel.pipeline.build import require_pipeline

SAVED = CheckpointPolicy(every=3, asynchronous=False)
ONE = Mesh()
TWO = Mesh(pp=2)


def run(gang, plan, **environ):
    assert gang.run(plan, **environ) == [0] * plan.world_size, gang.log()
    return gang.result()


def losses_of(result):
    return [loss for _, loss in result.jobs[0].losses]


@pytest.fixture(scope="module")
def alone(warm, tmp_path_factory):
    """What one rank without a pipeline leaves."""
    return run(Gang(tmp_path_factory.mktemp("alone"), warm, CODE), deep_plan(ONE))


@pytest.fixture
def beside(warm, tmp_path):
    """Function that gives a gang of the same run as another one: its own folder, the same store."""

    def make(gang):
        other = Gang(tmp_path / "beside", warm, gang.code)
        other.store_url, other.store = gang.store_url, gang.store
        return other

    return make


@pytest.mark.parametrize("schedule", [pytest.param("1f1b", marks=pytest.mark.slow), "zbv"])
def test_evaluation_runs_through_the_stages_whatever_the_shape(make_gang, alone, schedule):
    """11 held-out samples in batches of 2: the last one is smaller. The rank of the loss holds its own part only."""
    metrics = run(make_gang(CODE), deep_plan(TWO, schedule)).jobs[0].metrics
    wanted = alone.jobs[0].metrics
    assert metrics["eval_loss"] == pytest.approx(wanted["eval_loss"], rel=1e-5)
    assert metrics["error"] == pytest.approx(wanted["error"], rel=1e-5)
    block = sum(each.numel() for each in TASKS.Block(8, 0.0).parameters())
    assert wanted["held"] - 3 * block <= metrics["held"] <= wanted["held"] - 2 * block


@pytest.mark.parametrize(("mesh", "schedule"), [
    (TWO, "interleaved_zero_bubble"), pytest.param(Mesh(pp=2, dp_shard=2), "zbv", marks=pytest.mark.slow),
])  # fmt: skip
@pytest.mark.long
def test_a_resumed_pipeline_has_the_bits_of_an_unbroken_one(make_gang, mesh, schedule):
    plan = deep_plan(mesh, schedule, model=MODEL | {"dropout": 0.2}, checkpoint=SAVED)
    whole, broken = make_gang(CODE), make_gang(CODE)
    run(broken, replace(plan, stop_at=3))
    found = [stored_digests(gang.store, run(gang, plan).checkpoint, KEY) for gang in (whole, broken)]
    assert [each["step"] for each in broken.events(event="resumed")] == [3]
    assert found[0] == found[1]


@pytest.mark.parametrize(("first", "second"), [
    (TWO, Mesh(dp_replicate=2)),
    *(pytest.param(*each, marks=pytest.mark.slow) for each in [(ONE, TWO), (TWO, Mesh(pp=4))]),
])  # fmt: skip
def test_a_checkpoint_opens_and_proves_under_other_stages(make_gang, beside, first, second):
    trained = make_gang(CODE)
    own = run(trained, deep_plan(first, "1f1b"))
    jobs = (Job(seed=1, train=False, checkpoint=own.checkpoint), Job(seed=1, steps=3))
    micro_batch = 2 if second.pp < 4 else 1
    result = run(beside(trained), deep_plan(second, "gpipe", role="prove", jobs=jobs, micro_batch=micro_batch))
    names = len(stored_model(trained, own.checkpoint))
    assert result.digests.different == ()
    assert result.digests.equal == result.digests.total >= names
    assert losses_of(result) == pytest.approx(losses_of(own)[:3], rel=1e-5)


@pytest.mark.slow
def test_stages_cut_by_rules_of_sequences_and_logits_train_as_one_rank(make_gang):
    """What such a stage hands on is a view, what the last one gives lies in parts over its peers."""
    found = []
    for mesh in (ONE, Mesh(pp=2, tp=2)):
        gang = make_gang(ROOT / "examples" / "bytegpt")
        plan = make_plan("none", steps=3, micro_batch=2, model={"layers": 4, "width": 64, "context": 16},
                         data=gang.put_text(sample_text(8192)))  # fmt: skip
        result = run(gang, replace(plan, strategy="explicit", mesh=mesh, pp_schedule="zbv"))
        found.append([*losses_of(result), *result.jobs[0].metrics.values()])
    assert found[1] == pytest.approx(found[0], rel=1e-5)


def test_idle_time_is_booked_as_such(make_gang):
    gang = make_gang(CODE)
    run(gang, deep_plan(TWO, "gpipe"))
    for rank in (0, 1):
        steps = gang.events(rank, "step")
        assert all(step["phases"]["bubble"] > 0 for step in steps)
        assert all(step["phases"]["backward"] > 0 for step in steps)
        assert sum(step["phases"]["bubble"] for step in steps) == pytest.approx(
            gang.events(rank, "ledger")[-1]["seconds"]["bubble"]
        )


@pytest.mark.parametrize("schedule", [pytest.param("1f1b", marks=pytest.mark.slow), "zbv"])
def test_recomputed_activations_change_nothing(make_gang, alone, schedule):
    plan = deep_plan(TWO, schedule, memory=Memory(activation_checkpointing="full"))
    assert losses_of(run(make_gang(CODE), plan)) == pytest.approx(losses_of(alone), rel=1e-5)


@pytest.mark.parametrize("precision", [pytest.param("bf16", marks=pytest.mark.slow), "fp16"])
def test_half_precision_computes_as_on_one_rank(make_gang, precision):
    """Also where the first scale is too large: all stages wait alike for one that fits."""
    found = [losses_of(run(make_gang(CODE), deep_plan(mesh, precision=precision))) for mesh in (TWO, ONE)]
    assert found[0] == pytest.approx(found[1], rel=1e-2)


@pytest.mark.slow
def test_shards_of_stages_in_half_precision_stay_near(make_gang, alone):
    found = losses_of(run(make_gang(CODE), deep_plan(Mesh(pp=2, dp_shard=2), precision="bf16")))
    assert found == pytest.approx(losses_of(alone), rel=5e-2)


def test_a_bad_step_is_skipped_by_all_stages_alike(make_gang):
    """The last stage alone sees the loss; its first micro-batch of step 2 is the fifth."""
    gang = make_gang(CODE)
    plan = deep_plan(TWO, "1f1b", recovery=Recovery(non_finite="skip"), steps=4)
    run(gang, plan, STRIKE="nan:5")
    assert [each["step"] for rank in (0, 1) for each in gang.events(rank, "non_finite")] == [2, 2]


@pytest.mark.slow
def test_a_bad_step_stops_every_stage(make_gang):
    gang = make_gang(CODE)
    assert gang.run(deep_plan(TWO, "zbv"), STRIKE="nan:5") == [31, 31], gang.log()


def test_an_overflow_in_one_stage_holds_back_all(make_gang):
    """The last stage alone meets it, and sees the loss."""
    kept, faulty = make_gang(CODE), make_gang(CODE)
    plan = deep_plan(TWO, "1f1b", steps=1, clip_norm=None)
    first = run(kept, replace(plan, optimizer={"elementwise": {"rule": "sgd", "lr": 0.0}}))
    after = run(faulty, replace(plan, precision="fp16"), STRIKE="overflow:4")
    wanted, found = stored_model(kept, first.checkpoint), stored_model(faulty, after.checkpoint)
    assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())


def test_more_stages_than_blocks_are_refused_on_every_rank(make_gang):
    gang = make_gang(CODE)
    assert gang.run(deep_plan(TWO, model={"layers": 1})) == [10, 10], gang.log()
    for rank in (0, 1):
        assert "2 stages wants 2 blocks or more, the model has 1; 1 stages work" in gang.log(rank)


@pytest.mark.parametrize(
    ("mesh", "changes", "said"),
    [
        (TWO, {"pp_schedule": "dualpipev", "micro_batch": 4}, "4, or more; found 2; micro_batch 1 or 2 works"),
        (TWO, {"global_batch": 7}, "global_batch = 7 on 1 data-parallel ranks is not a multiple of micro_batch = 2"),
        (Mesh(pp=2, dp_shard=2), {"global_batch": 9}, "global_batch 8 works"),
        (TWO, {"compile": True, "pp_schedule": "zbv"}, "wanted false with pp_schedule"),
        (
            TWO,
            {"program": ProgramSpec(command=("python", "train.py"))},
            "train.mesh.pp: wanted 1 for a command, found 2",
        ),
        (TWO, {"recovery": Recovery(stragglers="rebalance")}, '"name" and "evict" work in a pipeline'),
        (TWO, {"compression": Compression(kind="topk")}, "is not supported in pipelines"),
        (TWO, {"memory": Memory(loss_chunks=2)}, "train.memory.loss_chunks: wanted 1 in a pipeline, found 2"),
    ],
    ids=["micro-batches", "rest", "share", "compile", "command", "uneven", "compression", "chunks"],
)
def test_a_plan_whose_pipeline_cannot_run_is_refused_with_what_works(mesh, changes, said):
    with pytest.raises(ConfigError) as raised:
        require_pipeline(replace(deep_plan(mesh), **changes))
    assert said in str(raised.value)


def test_micro_batches_of_different_shapes_are_refused_by_name(make_gang):
    gang = make_gang(CODE)
    assert gang.run(deep_plan(TWO, micro_batch=1), UNEVEN="1") == [10, 10], gang.log()
    assert "a pipeline needs micro-batches of one shape: 'note' is [1," in gang.log()
