"""Each kind of compression against its slow version in one process, and what all kinds promise."""

import time
from functools import cache

import pytest
import torch
import torch.distributed as dist
from tests.oracles import compressed
from tests.train.parallel.compress.ranks import on_ranks
from tests.train.parallel.compress.torchs import powersgd_beside_torchs
from tests.train.parallel.compress.worked import SHAPES, averages, bucket_of, gradients

from gangline.spec.plan import Compression
from gangline.train.account.clock import WaitMeter
from gangline.train.parallel.compress.collectives import GradientCollectives
from gangline.train.parallel.compress.factory import make_compressor
from gangline.train.runtime.initialization import derived_seed

pytestmark = pytest.mark.long

ALL = (tuple(SHAPES),)
SPLIT = (("norm", "embed"), ("last", "bias", "wide"))
TURNED = (("wide", "norm"), ("embed", "last", "bias"))
STEADY = (ALL,) * 5
MOVING = (ALL, SPLIT, TURNED, ALL, SPLIT)
KINDS = {
    "topk": Compression(kind="topk", ratio=0.05), "int8": Compression(kind="int8"),
    "powersgd": Compression(kind="powersgd", rank=2), "fp16": Compression(kind="fp16"),
    "bf16": Compression(kind="bf16"), "none": Compression(),
}  # fmt: skip
WITH_MEMORY = ("topk", "int8", "powersgd")


def everything():
    """What the tests look at, of every kind: one start of the ranks is enough."""
    found = {"waited": late_rank(), "torchs": powersgd_beside_torchs()}
    for kind, compression in KINDS.items():
        found[kind] = {
            "moving": averages(compression, MOVING), "steady": averages(compression, STEADY),
            "reloaded": averages(compression, STEADY, load_at=2), "poisoned": poisoned(compression),
        }  # fmt: skip
    return found


def poisoned(compression):
    """Is each of three steps finite, where one rank has a NaN in the second?"""
    compressor, finite = make_compressor(compression, GradientCollectives(None, WaitMeter()), seed=3), []
    for step in range(3):
        bucket = bucket_of(gradients(SHAPES, rank=dist.get_rank(), step=step))
        if step == 1 and dist.get_rank() == 1:
            bucket.pieces[0].grad[3, 5] = float("nan")
        compressor.average(bucket).wait()
        finite.append(bool(torch.isfinite(bucket.flat).all()))
    return finite


def late_rank():
    """Seconds that this rank waited, where rank 1 comes half a second late."""
    waits = WaitMeter()
    compressor = make_compressor(KINDS["int8"], GradientCollectives(None, waits), seed=3)
    dist.barrier()
    time.sleep(0.5 * dist.get_rank())
    compressor.average(bucket_of(gradients(SHAPES, rank=dist.get_rank(), step=0)))
    return waits.take()


@cache
def answers(ranks):
    return on_ranks(ranks, everything)


def first_factor(name, columns):
    generator = torch.Generator().manual_seed(derived_seed(3, "powersgd", name))
    return torch.randn((columns, 2), generator=generator)


ORACLES = {
    "topk": lambda ranks: compressed.TopK(ranks, 0.05),
    "powersgd": lambda ranks: compressed.PowerSGD(ranks, 2, first_factor),
}


def given(ranks, step):
    return [gradients(SHAPES, rank=rank, step=step) for rank in range(ranks)]


def assert_same(found, wanted, *, exactly=False):
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        tolerance = {"atol": 0, "rtol": 0} if exactly else {"atol": 1e-5, "rtol": 1e-5}
        torch.testing.assert_close(found[name], tensor, msg=lambda text, name=name: f"{name}: {text}", **tolerance)


@pytest.mark.proves("compression: averages of topk and powersgd", oracle="written slowly in one process", gate="1e-5")
@pytest.mark.parametrize("kind", ORACLES)
@pytest.mark.parametrize("ranks", [2, 3])
def test_averages_are_those_of_the_slow_version_step_after_step(kind, ranks):
    oracle = ORACLES[kind](ranks)
    wanted = [oracle.step(given(ranks, step)) for step in range(len(MOVING))]
    for rank in answers(ranks):
        for ours, theirs in zip(rank[kind]["moving"][0], wanted, strict=True):
            assert_same(ours, theirs)


@pytest.mark.parametrize("ranks", [2, 3])
def test_int8_is_the_twice_rounded_mean_and_loses_nothing_for_good(ranks):
    """All that went in came out or is kept for the next step; the first step is that of the slow version."""
    kept = [rank["int8"]["moving"][1] for rank in answers(ranks)]
    steps = answers(ranks)[0]["int8"]["moving"][0]
    assert_same(steps[0], compressed.Int8(ranks).step(given(ranks, 0)))
    for name in SHAPES:
        went_in = sum(compressed.mean_of(given(ranks, step))[name] for step in range(len(MOVING)))
        came_out = sum(step[name] for step in steps)
        left = sum(state[f"residual/{name}"] for state in kept) / ranks
        torch.testing.assert_close(came_out + left, went_in, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_all_ranks_get_the_same_bits(kind):
    first, *others = (rank[kind]["moving"][0] for rank in answers(3))
    for other in others:
        for ours, theirs in zip(other, first, strict=True):
            assert_same(ours, theirs, exactly=True)


@pytest.mark.parametrize("kind", KINDS)
def test_neither_the_layout_of_buckets_nor_a_reload_changes_a_bit(kind):
    """DDP lays buckets out anew after its first step, in a resumed run as well."""
    for rank in answers(2):
        for step, steady in enumerate(rank[kind]["steady"][0]):
            assert_same(rank[kind]["moving"][0][step], steady, exactly=True)
            assert_same(rank[kind]["reloaded"][0][step], steady, exactly=True)


@pytest.mark.parametrize("kind", ["fp16", "bf16"])
def test_half_precision_is_the_mean_rounded(kind):
    dtype, tolerance = (torch.float16, 2e-3) if kind == "fp16" else (torch.bfloat16, 2e-2)
    found, state = answers(2)[0][kind]["moving"]
    assert state == {}
    for name, mean in compressed.mean_of(given(2, 0)).items():
        assert torch.equal(found[0][name], found[0][name].to(dtype).float())
        torch.testing.assert_close(found[0][name], mean, atol=tolerance * float(mean.abs().max()), rtol=tolerance)


def test_powersgd_gives_what_torchs_hook_gives_from_the_same_factor():
    for rank in answers(2):
        for ours, theirs in rank["torchs"]:
            torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


def test_time_that_averages_block_is_waiting_and_the_late_rank_waits_least():
    first, late = (rank["waited"] for rank in answers(2))
    assert first > late + 0.2


@pytest.mark.parametrize("kind", WITH_MEMORY)
def test_one_bad_step_is_seen_by_all_and_forgotten(kind):
    """A NaN on one rank reaches every rank, so that all skip the step, and leaves nothing behind."""
    assert [rank[kind]["poisoned"] for rank in answers(2)] == [[True, False, True]] * 2
