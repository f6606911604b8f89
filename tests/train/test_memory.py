"""What each strategy keeps on a rank: tensors by count, the peak by torch's allocator, as shares of DDP's."""

import pytest
from tests.train.weighing import plan_of

from gangline.spec.mesh import Mesh
from gangline.spec.plan import Memory


def plan(strategy, ranks=2, **memory):
    mesh = Mesh(dp_shard=ranks) if strategy in ("zero2", "fsdp") else Mesh(dp_replicate=ranks)
    if strategy == "hsdp":
        mesh = Mesh(dp_replicate=2, dp_shard=ranks // 2)
    return plan_of(strategy, mesh, memory=Memory(**memory))


def test_ddp_keeps_sixteen_bytes_a_parameter(weight):
    found = weight(plan("ddp"))
    assert found["parameters"] == found["gradients"] == found["optimizer"] / 2 == found["state"] / 4


@pytest.mark.parametrize(("strategy", "share"), [("zero1", 0.75), ("zero2", 0.5), ("fsdp", 0.5)])
def test_state_of_two_ranks(weight, strategy, share):
    assert weight(plan(strategy))["state"] / weight(plan("ddp"))["state"] == pytest.approx(share, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "share"), [("zero1", 0.625), ("zero2", 0.25), ("fsdp", 0.25), ("hsdp", 0.5)]
)  # fmt: skip
def test_state_of_four_ranks(weight, strategy, share):
    assert weight(plan(strategy, ranks=4))["state"] / weight(plan("ddp"))["state"] == pytest.approx(share, rel=0.01)


def test_what_zero1_leaves_to_others_is_missing_in_the_peak(weight):
    saved = weight(plan("ddp"))["optimizer"] - weight(plan("zero1"))["optimizer"]
    assert weight(plan("ddp"))["peak"] - weight(plan("zero1"))["peak"] == pytest.approx(saved, rel=0.02)


def test_strategies_that_share_more_peak_lower(weight):
    """zero1 and zero2 are near each other: all gradients of a step here, all parameters and a block's buffers there."""
    ddp, zero1, zero2, fsdp = (weight(plan(strategy))["peak"] for strategy in ("ddp", "zero1", "zero2", "fsdp"))
    assert fsdp < min(zero1, zero2)
    assert max(zero1, zero2) < 0.9 * ddp
    assert fsdp < 0.8 * ddp


@pytest.mark.parametrize("option", [{"activation_checkpointing": "full"}, {"offload": "optimizer_nvme"}], ids=str)
@pytest.mark.long
def test_every_option_lowers_the_peak_and_leaves_the_state(weight, option):
    assert weight(plan("ddp", **option))["state"] == weight(plan("ddp"))["state"]
    assert weight(plan("ddp", **option))["peak"] < weight(plan("ddp"))["peak"]


@pytest.mark.long
def test_shards_reduced_after_each_micro_batch_leave_no_whole_gradients(weight):
    shards = Mesh(dp_shard=2)
    last, each = (
        weight(plan_of("fsdp", shards, accumulation=2, memory=Memory(gradient_sync=word))) for word in ("last", "each")
    )
    assert each["state"] == last["state"]
    assert last["peak"] - each["peak"] > 0.5 * each["gradients"]  # whole gradients are twice a shard's
