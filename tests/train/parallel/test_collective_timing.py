"""FSDP2's collectives under a watch: what they hand back is what torch gave, for FSDP2 waits for nothing else."""

import pytest
import torch
import torch.distributed as dist

from gangline.train.account.clock import WaitMeter
from gangline.train.parallel.data_parallel import time_replicas, time_shards
from gangline.train.runtime.rendezvous import join_alone, leave
from gangline.train.runtime.torch_compat import fsdp_collectives


class Module:
    """Takes what a sharded module takes."""

    def set_custom_all_gather(self, comm):
        self.gather = comm

    def set_custom_reduce_scatter(self, comm):
        self.scatter = comm


@pytest.fixture
def group():
    join_alone("cpu")
    yield dist.group.WORLD
    leave()


def test_work_that_is_under_way_is_torchs_own(group, monkeypatch):
    """Anything that only looks like it is never waited for, and the values of the step before are computed with."""
    module, waits = Module(), WaitMeter()
    time_shards(module, waits)
    monkeypatch.setattr(fsdp_collectives, "dist", fsdp_collectives.dist)
    time_replicas(waits)
    out, given = torch.zeros(4), torch.arange(4.0)
    works = [
        module.gather(out, given, group, async_op=True),
        module.scatter(torch.zeros(4), given, group, op=dist.ReduceOp.SUM, async_op=True),
        fsdp_collectives.dist.all_reduce(given.clone(), group=group, async_op=True),
    ]
    assert all(isinstance(each, dist.Work) for each in works)
    for each in works:
        each.wait()
    assert torch.equal(out, given)
