"""Bare torch loops over `examples/bytegpt`, as anybody writes them first: no runtime, two gloo ranks."""

import torch
import torch.distributed as dist
from model import GPT
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import default_collate

BATCH = 16
MICRO_BATCHES = 4
"""Micro-batches of a pipeline."""


class Bare:
    """Fetch, forward, backward, clip by norm, AdamW, read the loss."""

    shares = 2
    """Ranks that take different samples."""

    def __init__(self, options: dict, data, rank: int) -> None:
        self.data, self.rank = data, rank
        self.order = torch.randperm(len(data), generator=torch.Generator().manual_seed(1)).tolist()
        self.model = self.build(GPT(**options))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)

    def build(self, model: nn.Module) -> nn.Module:
        raise NotImplementedError

    def backward(self, batch: dict) -> float:
        loss = cross_entropy(self.model(batch["tokens"]).flatten(0, 1), batch["targets"].flatten())
        loss.backward()
        return loss.item()

    def clip(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1e6)

    def step(self, number: int) -> float:
        size = BATCH // self.shares
        start = (BATCH * number + size * (self.rank % self.shares)) % (len(self.order) - size)
        batch = default_collate([self.data[index] for index in self.order[start : start + size]])
        loss = self.backward(batch)
        self.clip()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


class Ddp(Bare):
    def build(self, model):
        return DistributedDataParallel(model, gradient_as_bucket_view=True)


class Fsdp(Bare):
    def build(self, model):
        mesh = init_device_mesh("cpu", (2,))
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)


class Tp(Bare):
    """Blocks cut in two, activations between them cut along the sequence, logits along the vocabulary."""

    shares = 1

    def build(self, model):
        mesh = init_device_mesh("cpu", (2,))
        block = {
            "norm_attention": SequenceParallel(),
            "wqkv": ColwiseParallel(input_layouts=Shard(1)),
            "wo": RowwiseParallel(output_layouts=Shard(1)),
            "norm_mlp": SequenceParallel(),
            "mlp.0": ColwiseParallel(input_layouts=Shard(1)),
            "mlp.2": RowwiseParallel(output_layouts=Shard(1)),
        }
        for layer in model.layers:
            parallelize_module(layer, mesh, block)
        ends = {
            "token": RowwiseParallel(input_layouts=Replicate(), use_local_output=False),
            "layers.0": PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Shard(1),),
                                           use_local_output=True),
            "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
        }  # fmt: skip
        parallelize_module(model, mesh, ends)
        model.position.weight = nn.Parameter(distribute_tensor(model.position.weight, mesh, [Replicate()]))
        loss_parallel().__enter__()  # for good: leaving it would end that of the runtime in this process, too
        return model


class Pipeline1F1B(Bare):
    """Half of the blocks on each rank."""

    shares = 1

    def build(self, model):
        half = len(model.layers) // 2
        parts = (Front(model, half), Back(model, half))
        stage = PipelineStage(parts[self.rank], self.rank, 2, torch.device("cpu"))
        self.schedule = Schedule1F1B(stage, MICRO_BATCHES, lambda out, y: cross_entropy(out.flatten(0, 1), y.flatten()))
        return parts[self.rank]

    def backward(self, batch):
        if self.rank == 0:
            self.schedule.step(batch["tokens"])
            return 0.0
        losses = []
        self.schedule.step(target=batch["targets"], losses=losses)
        return sum(each.item() for each in losses) / len(losses)

    def clip(self):
        grads = [each.grad for each in self.model.parameters()]
        square = torch.nn.utils.get_total_norm(grads) ** 2
        dist.all_reduce(square)
        torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), 1e6, square.sqrt())


class Front(nn.Module):
    def __init__(self, model, half):
        super().__init__()
        self.token, self.position, self.layers = model.token, model.position, model.layers[:half]

    def forward(self, tokens):
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return x


class Back(nn.Module):
    def __init__(self, model, half):
        super().__init__()
        self.layers, self.norm, self.head = model.layers[half:], model.norm, model.head

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


LOOPS: dict[str, type[Bare]] = {"ddp": Ddp, "fsdp": Fsdp, "tp": Tp, "pp": Pipeline1F1B}
