"""Every strategy against one process in a plain torch loop, and against each other."""

from functools import cache

import pytest
import torch
from tests.oracles.one_process import train
from tests.train.gang import MESHES, load_tiny, stored_model, tiny_plan

STEPS = 14
MODEL = {"width": 8, "layers": 3}
TASKS = load_tiny()


@cache
def oracle(global_batch):
    """Weights and losses of one process."""
    data, task = TASKS.Points(0, 37), TASKS.Tiny()
    return train(task, options=MODEL, data=data, steps=STEPS, global_batch=global_batch, clip_norm=3.0)


def case(strategy, global_batch, micro_batch):
    proves = pytest.mark.proves(strategy, oracle="one process, weights after 14 AdamW steps", gate="1e-5")
    return pytest.param(strategy, global_batch, micro_batch, marks=proves)


@pytest.mark.parametrize(
    ("strategy", "global_batch", "micro_batch"),
    [
        *(case(name, 8, 2) for name in MESHES),
        case("ddp", 8, 4), case("fsdp", 8, 4), case("ddp", 7, 2), case("fsdp", 7, 4),
    ],
)  # fmt: skip
def test_strategy_trains_the_weights_of_one_process(make_gang, reached, strategy, global_batch, micro_batch):
    """Also with accumulation, with weights that differ from sample to sample, and with shares that differ by one."""
    wanted, losses = oracle(global_batch)
    gang = make_gang()
    plan = tiny_plan(
        strategy, model=MODEL, steps=STEPS, global_batch=global_batch, micro_batch=micro_batch, clip_norm=3.0
    )
    assert gang.run(plan) == [0] * plan.world_size, gang.log()
    result = gang.result()
    found = stored_model(gang, result.checkpoint)
    assert found.keys() == wanted.keys()
    reached(max(float((found[name] - tensor).abs().max()) for name, tensor in wanted.items()))
    for name, tensor in wanted.items():
        torch.testing.assert_close(
            found[name], tensor, atol=1e-5, rtol=0, msg=lambda text, name=name: f"{name}: {text}"
        )
    assert [loss for _, loss in result.jobs[0].losses] == pytest.approx(losses, rel=1e-5)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_stays_near_and_every_wrapper_computes_alike(make_gang, precision):
    _, exact = oracle(8)
    found = {}
    for strategy in ("ddp", "fsdp"):
        gang = make_gang()
        assert gang.run(tiny_plan(strategy, model=MODEL, steps=4, precision=precision)) == [0, 0], gang.log()
        found[strategy] = [loss for _, loss in gang.result().jobs[0].losses]
        assert "Warning" not in gang.log()
    assert found["ddp"] == pytest.approx(found["fsdp"], rel=1e-2)
    assert found["ddp"][0] == pytest.approx(exact[0], rel=2e-2)


def test_evaluation_covers_every_held_out_sample_once_whatever_the_world_size(make_gang):
    metrics = []
    for strategy in ("none", "ddp", "hsdp"):
        gang = make_gang()
        assert set(gang.run(tiny_plan(strategy, steps=1, micro_batch=2))) == {0}, gang.log()
        metrics.append(gang.result().jobs[0].metrics)
    assert metrics[0].keys() == {"eval_loss", "error"}
    assert metrics[1] == pytest.approx(metrics[0], rel=1e-6)
    assert metrics[2] == pytest.approx(metrics[0], rel=1e-6)
