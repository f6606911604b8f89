"""Collectives of one device, each kind in each width that gradients travel in: NCCL gives back what went in."""

import multiprocessing

import pytest
import torch
from tests.train.gpu import DEVICE, on_gpu

from gangline.train.runtime.rendezvous import join_alone, leave
from gangline.train.runtime.torch_compat import all_gather_single, reduce_scatter_single

pytestmark = on_gpu
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")


@pytest.mark.parametrize("width", ["float32", "bfloat16", "float16"])
def test_a_group_of_one_device_exchanges_what_went_in(width):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(exchanged, (DEVICE, width)) == dict.fromkeys(KINDS, (True, DEVICE))


def test_small_words_of_the_same_gang_go_over_the_host():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(summed_on_the_host, (DEVICE,)) == 3.0


def exchanged(device, width):
    """Kind to whether its result equals what went in, and where it lies."""
    import torch.distributed as dist

    join_alone(device)
    given = torch.randn(4096, generator=torch.Generator().manual_seed(1)).to(getattr(torch, width)).to(device)
    calls = {
        "all_reduce": lambda out: (out.copy_(given), dist.all_reduce(out)),
        "all_gather": lambda out: all_gather_single(out, given),
        "reduce_scatter": lambda out: reduce_scatter_single(out, given),
        "all_to_all": lambda out: dist.all_to_all_single(out, given),
        "broadcast": lambda out: (out.copy_(given), dist.broadcast(out, 0)),
    }
    found = {}
    for kind, call in calls.items():
        out = torch.full_like(given, torch.nan)
        call(out)
        found[kind] = (torch.equal(out, given), out.device.type)
    leave()
    return found


def summed_on_the_host(device):
    import torch.distributed as dist

    groups = join_alone(device)
    word = torch.tensor(3.0)
    dist.all_reduce(word, group=groups.control)
    leave()
    return float(word)
