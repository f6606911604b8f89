"""Context parallelism of whole trainings, against one process that sees every sequence whole."""

import pytest
from tests.train.parallel.long import CODE, SGD, long_plan, one_process, one_process_of_sgd, require_parity

from gangline.spec.mesh import Mesh
from gangline.spec.plan import Memory

GATE = 1e-5


def proves(*values, marks=()):
    return pytest.param(*values, marks=[pytest.mark.proves("cp", oracle="one process, weights after 6 AdamW steps",
                                                           gate="1e-5"), *marks])  # fmt: skip


@pytest.mark.parametrize(
    ("task", "exchange", "mesh"),
    [
        proves("Long", "ring", Mesh(cp=2)),
        proves("LongOwn", "ring", Mesh(dp_shard=2, cp=2), marks=[pytest.mark.slow]),
        proves("Long", "ulysses", Mesh(dp_replicate=2, cp=2), marks=[pytest.mark.long]),
        proves("Long", "ring", Mesh(cp=4), marks=[pytest.mark.slow]),
        proves("Long", "ulysses", Mesh(cp=4), marks=[pytest.mark.slow]),
        proves("LongOwn", "ulysses", Mesh(dp_shard=2, cp=2), marks=[pytest.mark.slow]),
    ],
)  # fmt: skip
def test_cut_sequences_train_the_weights_of_whole_ones(make_gang, reached, task, exchange, mesh):
    plan = long_plan(mesh, task, context=exchange)
    reached(require_parity(make_gang(CODE), plan, one_process(task), gate=GATE))


def test_gradients_of_cut_sequences_are_as_large_as_those_of_whole_ones(make_gang):
    plan = long_plan(Mesh(dp_replicate=2, cp=2), **SGD)
    require_parity(make_gang(CODE), plan, one_process_of_sgd("Long"), gate=2e-6)


def product(strategy, mesh, *, schedule="1f1b", marks=()):
    mark = pytest.mark.proves(strategy, oracle="one process, weights after 6 AdamW steps", gate="1e-5")
    return pytest.param(mesh, schedule, marks=[mark, *marks])


@pytest.mark.parametrize(
    ("mesh", "schedule"),
    [
        product("cp x tp", Mesh(cp=2, tp=2)),
        product("pp x cp", Mesh(pp=2, cp=2), marks=[pytest.mark.slow]),
        product("dp_shard x cp x tp", Mesh(dp_shard=2, cp=2, tp=2), marks=[pytest.mark.slow]),
        product("pp x cp x tp", Mesh(pp=2, cp=2, tp=2), marks=[pytest.mark.slow]),
    ],
)
@pytest.mark.long
def test_cut_sequences_and_cut_modules_train_the_weights_of_one_process(make_gang, reached, mesh, schedule):
    plan = long_plan(mesh, "Long", pp_schedule=schedule)
    reached(require_parity(make_gang(CODE), plan, one_process("Long"), gate=GATE))


@pytest.mark.parametrize(
    ("policy", "exchange"),
    [
        ("full", "ring"),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in [("full", "ulysses"), ("selective", "ring"), ("selective", "ulysses")]
        ),
    ],
)
def test_what_is_computed_again_meets_the_same_peers(make_gang, policy, exchange):
    plan = long_plan(Mesh(cp=2), steps=3, context=exchange, memory=Memory(activation_checkpointing=policy))
    require_parity(make_gang(CODE), plan, one_process("Long", steps=3), gate=GATE)


def test_evaluation_sums_over_the_parts_of_every_sequence(make_gang):
    found = []
    for mesh in (Mesh(), Mesh(cp=2)):
        gang = make_gang(CODE)
        assert set(gang.run(long_plan(mesh, steps=1))) == {0}, gang.log()
        found.append(gang.result().jobs[0].metrics)
    assert found[0].keys() == {"eval_loss", "right"}
    assert found[1] == pytest.approx(found[0], rel=1e-6)


@pytest.mark.parametrize(
    ("task", "changes", "words"),
    [
        ("LongUntold", {}, "hints.sequence of the task is empty"),
        pytest.param("LongLost", {}, "forward of LostNet must take 'positions'", marks=pytest.mark.slow),
        ("LongDeaf", {}, "called no attention that works on cut sequences"),
        pytest.param("LongEncoder", {}, "computes attention in one fused call", marks=pytest.mark.slow),
        pytest.param("LongForgetful", {"steps": 1}, "Net was called without positions", marks=pytest.mark.slow),
        ("Long", {"model": {"length": 14}}, "sequences have 14 positions; 12 or 16 work"),
        pytest.param("Long", {"context": "ulysses", "model": {"heads": 1}}, "found 1 heads", marks=pytest.mark.slow),
    ],
)
def test_what_would_train_something_else_is_refused(make_gang, task, changes, words):
    gang = make_gang(CODE)
    assert gang.run(long_plan(Mesh(cp=2), task, **changes)) == [10, 10], gang.log()
    assert words in gang.events(event="done")[-1]["reason"]
