"""One GPU, world size 1: NCCL groups, bf16 under every wrapper, against fp32 on the CPU."""

import pytest
import torch
from tests.oracles.one_process import train
from tests.train.gang import KEY, load_tiny, stored_model, tiny_plan
from tests.train.gpu import DEVICE, on_gpu

from gangline.checkpoint.format.stored_tensors import stored_digests
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy

pytestmark = on_gpu
STEPS = 14
MODEL = {"width": 8, "layers": 3}
LOSS_TOLERANCE = {"fp32": 1e-4, "bf16": 5e-2}
"""Relative, of each step's loss: bf16 has 8 bits of mantissa, the loss is a square, the model a few layers deep."""
WEIGHT_TOLERANCE = {"fp32": 1e-4, "bf16": 3 * STEPS * 1e-3}
"""Absolute: AdamW moves a weight by about its rate of 1e-3 a step, whichever sign rounding gives a small gradient."""


@pytest.fixture(scope="module")
def oracle():
    tiny = load_tiny()
    return train(tiny.Tiny(), options=MODEL, data=tiny.Points(0, 37), steps=STEPS, global_batch=8)


def gpu_plan(strategy, precision, **changes):
    given = {"device": DEVICE, "precision": precision, "model": MODEL, "steps": STEPS, "deterministic": False}
    return tiny_plan(strategy, **{"mesh": Mesh(), "micro_batch": 4} | given | changes)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("strategy", ["none", "ddp", "fsdp"])
def test_gpu_trains_what_the_cpu_trains(make_gang, oracle, strategy, precision):
    wanted, losses = oracle
    gang = make_gang()
    assert gang.run(gpu_plan(strategy, precision)) == [0], gang.log()
    result = gang.result()
    found = stored_model(gang, result.checkpoint)
    assert [loss for _, loss in result.jobs[0].losses] == pytest.approx(losses, rel=LOSS_TOLERANCE[precision])
    for name, tensor in wanted.items():
        assert found[name].dtype == torch.float32
        torch.testing.assert_close(found[name], tensor, atol=WEIGHT_TOLERANCE[precision], rtol=0)


@pytest.mark.parametrize("strategy", ["none", "ddp", "fsdp"])
def test_fp16_trains_and_its_scaler_is_saved(make_gang, oracle, strategy):
    gang = make_gang()
    plan = gpu_plan(strategy, "fp16", checkpoint=CheckpointPolicy(every=7, asynchronous=False))
    assert gang.run(plan, STRIKE="kill:0:10") == [137], gang.log()
    assert gang.run(plan) == [0], gang.log()
    losses = [loss for _, loss in gang.result().jobs[0].losses]
    assert losses[0] == pytest.approx(oracle[1][0], rel=2e-2)
    assert len(losses) == STEPS
    assert sum(losses[-4:]) < sum(losses[:4])


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_events_report_device_memory_and_phases(make_gang, strategy):
    gang = make_gang()
    assert gang.run(gpu_plan(strategy, "bf16", steps=3)) == [0], gang.log()
    step = gang.events(event="step")[-1]
    assert 0 < step["peak_bytes"] < 1e9
    assert sum(step["phases"].values()) == pytest.approx(step["seconds"])


def test_killed_gpu_rank_resumes_to_the_same_bits(make_gang):
    plan = gpu_plan("fsdp", "bf16", steps=6, micro_batch=8, deterministic=True,
                    checkpoint=CheckpointPolicy(every=3, asynchronous=False))  # fmt: skip
    ends = []
    for strike in ("none:0:0", "kill:0:5"):
        gang = make_gang()
        first = gang.run(plan, STRIKE=strike)
        if first == [137]:
            first = gang.run(plan)
        assert first == [0], gang.log()
        ends.append(stored_digests(gang.store, gang.result().checkpoint, KEY))
    assert ends[0] == ends[1]
