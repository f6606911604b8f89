"""Pods that really train: two of them, one rank each, over gloo, found by the name of the headless Service."""

import json

import pytest
from tests.cluster.suites import gangs

pytestmark = pytest.mark.cluster

PROGRAM = """
import json, os, time
began = time.monotonic()
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
imported = time.monotonic() - began


def train(wrap, steps=5):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
    model = wrap(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(dist.get_rank())
    losses = []
    for _ in range(steps):
        batch = torch.randn(16, 32, generator=generator)
        loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(round(total.item() / dist.get_world_size(), 5))
    return losses


dist.init_process_group("gloo")
shared = torch.ones(1 << 16).share_memory_()
print(json.dumps({
    "rank": dist.get_rank(),
    "import_seconds": round(imported, 2),
    "shared": shared.sum().item(),
    "ddp": train(DistributedDataParallel),
    "fsdp": train(lambda model: (fully_shard(model), model)[1]),
}))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def reported(cluster):
    """What each rank printed."""
    namespace = cluster.namespace("train")
    gangs.submit(cluster, namespace, "pair", PROGRAM)
    logs = gangs.await_end(cluster, namespace, "pair")
    yield [json.loads(line[line.index("{") :]) for line in logs.splitlines() if '"ddp"' in line]
    cluster.delete(namespace)


def test_two_pods_train_under_ddp_and_agree(reported):
    assert sorted(each["rank"] for each in reported) == [0, 1]
    assert reported[0]["ddp"] == reported[1]["ddp"]
    assert reported[0]["ddp"][-1] < reported[0]["ddp"][0]


def test_sharded_parameters_train_as_replicated_ones_do(reported):
    assert reported[0]["fsdp"] == pytest.approx(reported[0]["ddp"], rel=1e-3)


def test_shared_memory_holds_tensors(reported):
    assert [each["shared"] for each in reported] == [1 << 16, 1 << 16]
