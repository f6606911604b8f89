"""Every schedule of a pipeline, bare and around other axes, against one process in a plain torch loop."""

from functools import cache

import pytest
from tests.oracles.one_process import train
from tests.train.parallel.deep import CODE, MODEL, TASKS, deep_plan
from tests.train.trained import gaps, trained

from gangline.spec.mesh import Mesh
from gangline.train.runtime.torch_compat import torch_release

pytestmark = pytest.mark.skipif(
    torch_release() < (2, 13),
    reason="pipelines are refused: stages of torch 2.11 send back gradients of all they received",
)
SCHEDULES = ["gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "interleaved_zero_bubble", "zbv", "dualpipev"]
ALONE, BESIDE = ["gpipe", "1f1b", "looped_bfs", "dualpipev"], ["interleaved_1f1b", "interleaved_zero_bubble", "zbv"]
"""The latter run by default, too, around another axis."""
WEIGHTS = 1e-5
"""Of weights after six AdamW steps, which magnify the least difference of gradients."""


@cache
def oracle(layers):
    """Weights and losses of one process."""
    return train(
        TASKS.DeepPoints(), options=MODEL | {"layers": layers}, data=TASKS.Points(0, 37), steps=6, global_batch=8,
        clip_norm=3.0,
    )  # fmt: skip


def require_parity(gang, plan, *, gate):
    """Run `plan`; largest relative difference of its losses to those of one process, which is at most `gate`."""
    weights, losses = gaps(trained(gang, plan), oracle(plan.model["layers"]))
    assert weights <= WEIGHTS, weights
    assert losses <= gate, losses
    return losses


def schedules(names=SCHEDULES, marks=()):
    oracle = "one process, losses of 6 AdamW steps"
    return [
        pytest.param(each, marks=[pytest.mark.proves(f"pp, {each}", oracle=oracle, gate="1e-6"), *marks], id=each)
        for each in names
    ]


def product(what, mesh, schedule, marks=()):
    mark = pytest.mark.proves(what, oracle="one process, losses of 6 AdamW steps", gate="1e-5")
    return pytest.param(mesh, schedule, marks=[mark, *marks], id=f"{what}, {schedule}")


@pytest.mark.parametrize("schedule", [*schedules(ALONE), *schedules(BESIDE, marks=[pytest.mark.slow])])
def test_schedule_trains_the_weights_of_one_process(make_gang, reached, schedule):
    reached(require_parity(make_gang(CODE), deep_plan(Mesh(pp=2), schedule), gate=1e-6))


@pytest.mark.slow
@pytest.mark.parametrize("schedule", schedules())
@pytest.mark.parametrize("ranks", [2, 4])
def test_schedule_of_many_micro_batches_trains_the_weights_of_one_process(make_gang, reached, schedule, ranks):
    plan = deep_plan(Mesh(pp=ranks), schedule, model=MODEL | {"layers": 8}, micro_batch=1)
    reached(require_parity(make_gang(CODE), plan, gate=1e-6))


AXES = ["dp_shard", "dp_replicate", "tp"]


@pytest.mark.parametrize(
    ("mesh", "schedule"),
    [
        product("pp x dp_shard", Mesh(pp=2, dp_shard=2), "zbv"),
        product("pp x dp_replicate", Mesh(pp=2, dp_replicate=2), "interleaved_zero_bubble"),
        product("pp x tp", Mesh(pp=2, tp=2), "interleaved_1f1b"),
        product("3d", Mesh(pp=2, dp_shard=2, tp=2), "1f1b"),
        *(
            product(f"pp x {axis}", Mesh(**{"pp": 2, axis: 2}), schedule, marks=[pytest.mark.slow])
            for axis in AXES
            for schedule in SCHEDULES
        ),
        *(
            product(f"pp x {first} x {second}", Mesh(**{"pp": 2, first: 2, second: 2}), schedule,
                    marks=[pytest.mark.slow])
            for first, second in [("dp_shard", "tp"), ("dp_replicate", "tp"), ("dp_replicate", "dp_shard")]
            for schedule in ["interleaved_1f1b", "zbv"]
        ),
    ],
)  # fmt: skip
@pytest.mark.long
def test_stages_of_other_strategies_train_the_weights_of_one_process(make_gang, reached, mesh, schedule):
    """DDP would lose gradients of schedules that take backward apart: copies are averaged as shards are."""
    plan = deep_plan(mesh, schedule, micro_batch=1 if schedule == "dualpipev" else 2)
    reached(require_parity(make_gang(CODE), plan, gate=1e-5))
