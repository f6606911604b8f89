"""Experts laid over ranks, against one process that holds them all."""

import pytest
from tests.train.parallel.long import CODE, SGD, long_plan, one_process, one_process_of_sgd, require_parity
from tests.train.trained import left_by, weight_gap

from gangline.spec.mesh import Mesh
from gangline.spec.plan import Memory

pytestmark = pytest.mark.long

GATE = 1e-5


def proves(*values, what="ep", marks=()):
    oracle = "one process, weights after 6 AdamW steps"
    return pytest.param(*values, marks=[pytest.mark.proves(what, oracle=oracle, gate="1e-5"), *marks])


@pytest.mark.parametrize(
    "mesh",
    [
        proves(Mesh(dp_shard=2, ep=2)),
        proves(Mesh(dp_shard=4, ep=2), marks=[pytest.mark.slow]),
        proves(Mesh(dp_replicate=2, dp_shard=2, ep=2), marks=[pytest.mark.slow]),
        proves(Mesh(dp_shard=2, cp=2, ep=4), what="ep x cp"),
        proves(Mesh(dp_shard=4, ep=4), marks=[pytest.mark.slow]),
        proves(Mesh(dp_shard=2, cp=2, ep=2), what="ep x cp", marks=[pytest.mark.slow]),
    ],
)
def test_experts_on_many_ranks_train_the_weights_of_one(make_gang, reached, mesh):
    reached(require_parity(make_gang(CODE), long_plan(mesh, "LongExperts"), one_process("LongExperts"), gate=GATE))


@pytest.mark.parametrize(
    "mesh",
    [Mesh(dp_shard=4, ep=2), pytest.param(Mesh(dp_replicate=2, dp_shard=2, ep=2), marks=pytest.mark.slow)],
)
def test_gradients_of_experts_are_as_large_as_in_one_process(make_gang, mesh):
    plan = long_plan(mesh, "LongExperts", **SGD)
    require_parity(make_gang(CODE), plan, one_process_of_sgd("LongExperts"), gate=2e-6)


@pytest.mark.slow
@pytest.mark.proves("ep x tp", oracle="one process, weights after 6 AdamW steps", gate="1e-5")
def test_experts_next_to_modules_that_are_cut(make_gang, reached):
    plan = long_plan(Mesh(dp_shard=2, ep=2, tp=2), "LongExpertsBesideTensor")
    reached(require_parity(make_gang(CODE), plan, one_process("LongExperts"), gate=GATE))


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_stays_near(make_gang, precision):
    gang, (_, losses) = make_gang(CODE), one_process("LongExperts")
    plan = long_plan(Mesh(dp_shard=2, cp=2, ep=2), "LongExperts", precision=precision)
    assert gang.run(plan) == [0] * 4, gang.log()
    found = [loss for _, loss in gang.result().jobs[0].losses]
    assert found == pytest.approx(losses, rel=2e-2)


def test_rows_travel_again_where_activations_are_computed_again(make_gang):
    memory = Memory(activation_checkpointing="full")
    plan = long_plan(Mesh(dp_shard=2, ep=2), "LongExperts", steps=3, memory=memory)
    require_parity(make_gang(CODE), plan, one_process("LongExperts", steps=3), gate=GATE)


@pytest.mark.long
def test_training_continues_with_experts_laid_otherwise(make_gang, reached):
    """Three steps on four ranks, saved; three more on two that hold every expert, then on one."""
    gang = make_gang(CODE)
    for steps, mesh in ((3, Mesh(dp_shard=4, ep=2)), (5, Mesh(dp_shard=2)), (5, Mesh()), (6, Mesh(dp_shard=2, ep=2))):
        plan = long_plan(mesh, "LongExperts", stop_at=steps)
        assert gang.run(plan) == [0] * plan.world_size, gang.log()
    worst = weight_gap(left_by(gang)[0], one_process("LongExperts")[0])
    assert worst <= GATE
    reached(worst)


@pytest.mark.parametrize(
    ("task", "mesh", "words"),
    [
        ("Long", Mesh(dp_shard=2, ep=2), "hints.experts of the task names none"),
        *(
            pytest.param(task, Mesh(dp_shard=2, ep=2), words, marks=pytest.mark.slow)
            for task, words in [
                ("LongExpertsElsewhere", "'layers.*.experts' matches no module of ExpertNet"),
                ("LongExpertsRouter", "forward of layers.0.moe wants two arguments"),
            ]
        ),
        (
            "LongExperts",
            Mesh(dp_shard=3, ep=3),
            "must divide the 4 experts of layers.0.moe.experts; ep in [1, 2, 4] works",
        ),
    ],
)
def test_what_cannot_be_laid_over_ranks_is_refused(make_gang, task, mesh, words):
    refuse(make_gang(CODE), long_plan(mesh, task, global_batch=mesh.data_parallel * 2), words)


def test_results_kept_inside_what_is_computed_again_are_refused(make_gang):
    memory = Memory(activation_checkpointing="selective")
    refuse(make_gang(CODE), long_plan(Mesh(dp_shard=2, ep=2), "LongExperts", memory=memory), '"full", "every_2"')


def refuse(gang, plan, words):
    assert gang.run(plan) == [10] * plan.world_size, gang.log()
    assert words in gang.events(event="done")[-1]["reason"]


def test_rank_whose_experts_see_no_token_continues_with_the_others(make_gang):
    gang, plan = make_gang(CODE), long_plan(Mesh(dp_shard=4, ep=2), "LongOneExpert", steps=3)
    require_parity(gang, plan, one_process("LongOneExpert", steps=3), gate=GATE)
    assert gang.events(event="step")[0]["expert_imbalance"] == 4.0
