"""A gang of two pods as the line starts it: our launcher, our keepers, code and plan from the store inside the cluster.

Under a plain Job and under Trainer. Each rank trains the same small model under DDP and under FSDP, over gloo."""

import json

import pytest
from tests.contracts.launcher.gangs import HEAD
from tests.contracts.launcher.stands import ClusterStand

from gangline.spec.gang.podset import Resources

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

PROGRAM = (
    HEAD
    + """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def train(wrap):
    torch.manual_seed(0)
    model = wrap(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank)
    losses = []
    for number in range(5):
        batch = torch.randn(16, 32, generator=generator)
        loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(round(total.item() / dist.get_world_size(), 5))
        step(number)
    return losses


step(0)
dist.init_process_group("gloo")
ddp = train(DistributedDataParallel)
fsdp = train(fully_shard)
print("losses", json.dumps({"rank": rank, "world": dist.get_world_size(), "ddp": ddp, "fsdp": fsdp}), flush=True)
dist.destroy_process_group()
"""
)


@pytest.fixture(scope="module", params=["job", "trainjob"])
def stand(request, cluster, tmp_path_factory):
    cluster.demand(request.param)
    namespace = cluster.namespace("gang")
    made = ClusterStand(tmp_path_factory.mktemp("gang"), cluster, namespace, kind=request.param)
    yield made
    made.close()
    cluster.delete(namespace)


@pytest.fixture(scope="module")
def ended(cluster, stand):
    """Events, logs and the end of one gang."""
    podset = stand.podset(
        PROGRAM,
        "train",
        num_nodes=2,
        procs_per_node=1,
        image=cluster.train_image,
        resources=Resources(cpus=0.5, memory_bytes=1_500_000_000, shm_bytes=64_000_000),
    )
    stand.launcher.submit(podset)
    events = list(stand.launcher.follow("train"))
    logs = list(stand.launcher.logs("train", ranks=None))
    return events, logs, stand.launcher.collect("train")


def losses(logs):
    lines = [line.text.partition(" ")[2] for line in logs if line.text.startswith("losses ")]
    return sorted(map(json.loads, lines), key=lambda reported: reported["rank"])


def test_gang_of_two_pods_ends_well(ended):
    events, logs, end = ended
    assert end.exit_code == 0, (end, [line.text for line in logs][-20:])
    assert events[-1].kind == "end"


def test_ranks_of_both_pods_train_together_under_ddp_and_fsdp(ended):
    _, logs, _ = ended
    reported = losses(logs)
    assert [each["rank"] for each in reported] == [0, 1]
    assert [each["world"] for each in reported] == [2, 2]
    assert reported[0]["ddp"] == reported[1]["ddp"]
    assert reported[0]["ddp"][-1] < reported[0]["ddp"][0]
    assert reported[0]["fsdp"] == pytest.approx(reported[0]["ddp"], rel=1e-3)


def test_follower_sees_it_run(ended):
    events, _, _ = ended
    states = [event.status.state for event in events if event.kind == "state" and event.status]
    assert "running" in states
    assert any(event.kind == "progress" for event in events)
