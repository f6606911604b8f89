"""A recommender: embedding tables of TorchRec, divided over all processes, and a small network that predicts clicks.

`python train.py` runs it here and now, with one process; `gangline run` runs the commit, with a process for each rank.
Every process looks up its own samples in the parts of the tables that all of them hold. Clicks follow a rule, so that
there is nothing to download.
"""

import os

import torch
import torch.distributed as dist
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torch import nn
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.nn.functional import binary_cross_entropy_with_logits
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
from torchrec.distributed.types import ShardingEnv

from gangline.train import Program

ROWS = {"user": 20_000, "item": 50_000, "place": 1_000}
"""Rows of each table."""
WIDTH = 16
ALONE = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}


def samples(numbers):
    """Each sample is a function of its number: a user, a place, one to three items, and whether there was a click."""
    drawn = (numbers * 2_654_435_761) % 2**31
    users, places, lengths = drawn % ROWS["user"], drawn // 7 % ROWS["place"], 1 + drawn % 3
    items = (drawn[:, None] // 11 + torch.arange(3) * 977) % ROWS["item"]
    ones = torch.ones_like(lengths)
    features = KeyedJaggedTensor.from_lengths_sync(
        keys=list(ROWS),
        values=torch.cat([users, items[torch.arange(3) < lengths[:, None]], places]),
        lengths=torch.cat([ones, lengths, ones]),
    )
    return features, ((users % 5 < 2) ^ (places % 3 == 0)).float()


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        tables = [
            EmbeddingBagConfig(name=name, embedding_dim=WIDTH, num_embeddings=rows, feature_names=[name])
            for name, rows in ROWS.items()
        ]
        self.tables = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
        self.over = nn.Sequential(nn.Linear(len(ROWS) * WIDTH, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, features):
        return self.over(self.tables(features).values()).squeeze(-1)


def divided(model):
    """The model with tables where TorchRec's planner puts them; their optimizer is part of the lookup."""
    sharder = EmbeddingBagCollectionSharder({"optimizer": EmbOptimType.EXACT_ROWWISE_ADAGRAD, "learning_rate": 0.3})
    planner = EmbeddingShardingPlanner(topology=Topology(world_size=dist.get_world_size(), compute_device="cpu"))
    return DistributedModelParallel(
        model, env=ShardingEnv.from_process_group(dist.group.WORLD), device=torch.device("cpu"),
        plan=planner.collective_plan(model, [sharder], dist.group.WORLD), sharders=[sharder],
    )  # fmt: skip


def whole(model):
    """All weights on process 0; called by every process."""
    found = {}
    for name, tensor in model.state_dict().items():
        found[name] = tensor
        if isinstance(tensor, ShardedTensor):
            found[name] = torch.empty(tensor.size()) if dist.get_rank() == 0 else None
            tensor.gather(out=found[name])
    return found


def main():
    os.environ.update({name: value for name, value in ALONE.items() if name not in os.environ})
    dist.init_process_group("gloo")
    with Program(steps=300, global_batch=1024) as program:
        torch.manual_seed(program.seed)
        model = divided(Recommender())
        network = torch.optim.Adam((each for name, each in model.named_parameters() if "over" in name), lr=0.005)
        share = program.global_batch // program.world_size
        while program.has_more:
            first = program.step_number * program.global_batch + program.rank * share
            features, clicks = samples(torch.arange(first, first + share))
            loss = binary_cross_entropy_with_logits(model(features), clicks)
            network.zero_grad()
            loss.backward()
            network.step()
            mean = loss.detach() / program.world_size
            dist.all_reduce(mean)
            program.step(loss=float(mean))
        features, clicks = samples(torch.arange(4096) + 10**9)
        with torch.no_grad():
            right = (model(features) > 0) == (clicks > 0)
        weights = whole(model)
        if program.rank == 0:
            torch.save(weights, "model.pt")
            print(f"accuracy {right.float().mean():.4f} with {program.world_size} processes")
        program.report(accuracy=float(right.float().mean()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
