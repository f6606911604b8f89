"""One model under every layout, made with torch alone: what each rank holds of it, and an optimizer over that."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

BLOCKS, WIDTH, HIDDEN, WORDS = 5, 6, 10, 11
"""Sizes that four does not divide, and some that two does not."""


@dataclass(frozen=True)
class Layout:
    kind: str
    size: int

    def __str__(self) -> str:
        return f"{self.kind}-{self.size}"


ALL = [
    Layout("one", 1), Layout("fsdp", 1),
    *(Layout(kind, size) for kind in ("ddp", "zero1", "fsdp", "tp", "pp") for size in (2, 4)),
    Layout("hsdp", 4), Layout("fsdp_tp", 4), Layout("pp_fsdp", 4),
]  # fmt: skip


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH), nn.LayerNorm(WIDTH)


class Net(nn.Module):
    """Also buffers, a frozen parameter and one that belongs to no block."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleDict({str(number): Block() for number in range(BLOCKS)})
        self.gain = nn.Parameter(torch.randn(1))
        self.frozen = nn.Parameter(torch.randn(3, 5), requires_grad=False)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.register_buffer("seen", torch.tensor(0))
        self.register_buffer("scale", torch.randn(5).to(torch.bfloat16))


def build(layout: Layout, rank: int, *, seed: int):
    """This rank's part of the model, and an optimizer with two groups that has not stepped."""
    model = wrapped(layout, rank, seed=seed)
    trained = [each for each in model.parameters() if each.requires_grad]
    groups = [
        {"params": [each for each in trained if each.dim() < 2], "weight_decay": 0.0},
        {"params": [each for each in trained if each.dim() >= 2], "lr": 3e-3},
    ]
    if layout.kind == "zero1":
        return model, ZeroRedundancyOptimizer(groups, torch.optim.AdamW, lr=1e-2, betas=(0.8, 0.95))
    return model, torch.optim.AdamW([group for group in groups if group["params"]], lr=1e-2, betas=(0.8, 0.95))


def wrapped(layout: Layout, rank: int, *, seed: int) -> Net:
    """This rank's part of the model."""
    torch.manual_seed(seed)
    model = Net()
    _WRAP.get(layout.kind, _whole)(model, rank, layout.size)
    return model


def step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    """One update with gradients that depend on the parameter's name alone, whatever part of it a rank holds."""
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        generator = torch.Generator().manual_seed(number * 1000 + sum(name.encode()))
        whole = torch.randn(parameter.size(), generator=generator)
        if isinstance(parameter, DTensor):
            parameter.grad = distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
        else:
            parameter.grad = whole
    optimizer.step()
    optimizer.zero_grad()


def _whole(model: nn.Module, rank: int, size: int) -> None:
    """Every rank holds it all."""


def _fsdp(model: nn.Module, rank: int, size: int, mesh=None) -> None:
    mesh = mesh or init_device_mesh("cpu", (size,))
    for block in model.blocks.values():
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def _hsdp(model: nn.Module, rank: int, size: int) -> None:
    _fsdp(model, rank, size, init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicate", "shard")))


def _tp(model: nn.Module, rank: int, size: int, mesh=None) -> None:
    mesh = mesh or init_device_mesh("cpu", (size,))
    for block in model.blocks.values():
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()}, src_data_rank=None)
    parallelize_module(model, mesh, {"head": ColwiseParallel()}, src_data_rank=None)


def _fsdp_tp(model: nn.Module, rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("dp", "tp"))
    _tp(model, rank, size, mesh["tp"])
    _fsdp(model, rank, size, mesh["dp"])


def _pp(model: nn.Module, rank: int, size: int) -> None:
    """Two stages a rank, as interleaved schedules have it: blocks 0, P, 2P, ... on rank 0."""
    for number in range(BLOCKS):
        if number % size != rank:
            del model.blocks[str(number)]
    if rank != 0:
        del model.embed
    if rank != size - 1:
        del model.head, model.gain, model.frozen, model.seen, model.scale


def _pp_fsdp(model: nn.Module, rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("pp", "dp"))
    _pp(model, mesh.get_local_rank("pp"), 2)
    _fsdp(model, rank, size, mesh["dp"])


_WRAP = {
    "fsdp": _fsdp, "hsdp": _hsdp, "tp": _tp, "fsdp_tp": _fsdp_tp, "pp": _pp, "pp_fsdp": _pp_fsdp,
}  # fmt: skip
