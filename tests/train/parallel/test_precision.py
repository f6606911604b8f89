"""One table of precisions for all wrappers: what computes, what is averaged, and how near to fp32 it stays."""

import pytest
import torch
from tests.train.gang import ROOT, Gang
from tests.train.parallel.memory_plans import plan_of
from tests.train.trained import trained

from gangline.train.parallel.precision import COMPUTE, autocast, grad_scaler, shard_policy

CPU = torch.device("cpu")
HALVES = ("bf16", "fp16")


@pytest.fixture(scope="module")
def losses(warm, tmp_path_factory):
    """Function of strategy and precision: losses of three steps; each is trained once."""
    known = {}

    def get(strategy, precision):
        if (strategy, precision) not in known:
            gang = Gang(tmp_path_factory.mktemp("kept"), warm, ROOT / "tests" / "train" / "code")
            known[strategy, precision] = trained(gang, plan_of(strategy, precision=precision, steps=3))[1]
        return known[strategy, precision]

    return get


@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_half_precision_stays_within_the_band_of_fp32(losses, strategy, precision):
    """Band: what half a unit in the last place of bf16 may do to a loss."""
    assert losses(strategy, precision) == pytest.approx(losses("ddp", "fp32"), rel=2**-8)
    assert losses(strategy, precision) != losses("ddp", "fp32")


def test_gradients_are_averaged_in_fp32_whatever_computes(make_gang):
    """Two ranks whose gradients are 256 and 1, in 1024ths: bf16 has no 257, an average in it would lose the 1."""
    found, _ = trained(make_gang(), one_step("fsdp", "bf16", [256, 1]))
    assert found["weight"].item() == 1 - RATE * 257 / 2 / 1024


RATE = 2.0


def one_step(strategy, precision, inputs):
    """One update of one weight by plain SGD; each rank has one of the inputs, its gradients times 1024."""
    sgd = {"elementwise": {"rule": "sgd", "lr": RATE}}
    return plan_of(strategy, "Steps", precision=precision, steps=1, global_batch=2, micro_batch=1,
                   model={"inputs": inputs}, optimizer=sgd)  # fmt: skip


@pytest.mark.parametrize("precision", COMPUTE)
@pytest.mark.parametrize("is_root", [True, False])
def test_reduction_is_named_always(precision, is_root):
    """Left out it means another dtype from one version of torch to the next."""
    policy = shard_policy(precision, is_root=is_root)
    assert policy.reduce_dtype is torch.float32
    assert policy.param_dtype is (None if precision == "fp32" else COMPUTE[precision])
    assert policy.output_dtype is (torch.float32 if is_root and precision != "fp32" else None)


@pytest.mark.parametrize("precision", COMPUTE)
def test_what_is_not_sharded_computes_under_autocast(precision):
    with autocast(precision, CPU, sharded=False):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is COMPUTE[precision]
    with autocast(precision, CPU, sharded=True):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32


def test_fp16_alone_scales_its_loss():
    assert [grad_scaler(precision, CPU).is_enabled() for precision in COMPUTE] == [False, False, True]


@pytest.mark.parametrize("strategy", ["zero1", pytest.param("fsdp", marks=pytest.mark.slow)])
def test_an_overflow_on_one_rank_is_skipped_by_all(make_gang, strategy):
    """The first scale of fp16 is 65,536: a gradient of 4 is beyond its range then, one of 1/1024 is not."""
    weights = [
        trained(make_gang(), one_step(strategy, "fp16", inputs))[0]["weight"].item() for inputs in ([4096, 1], [3, 1])
    ]
    assert weights == [1, 1 - RATE * 4 / 2 / 1024]
