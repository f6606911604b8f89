"""The order of wrapping: initialise, then data parallel, per block and then the root."""

import fnmatch
from collections.abc import Callable

import torch
from torch import nn

from gangline.errors import ConfigError
from gangline.spec.plan import Plan
from gangline.train.initialize import ROOT, Initializer
from gangline.train.loop.wait import WaitMeter
from gangline.train.mesh import shard_mesh
from gangline.train.parallel.data_parallel import DataParallel, Plain, Replicated, Sharded, shard
from gangline.train.strategies import effective_strategy
from gangline.train.task import ParallelHints


def wrap(
    initializer: Initializer, plan: Plan, hints: ParallelHints, *, device: torch.device, waits: WaitMeter
) -> DataParallel:
    """Give a model its first weights and wrap it as `plan` says; all ranks must call.

    Raises:
        ConfigError: The hints name blocks that are not there, or the plan asks for what this runtime cannot do.
    """
    strategy = effective_strategy(plan)
    model = initializer.model
    blocks = find_blocks(model, hints)
    wrap_block = _block_wrapper(plan, strategy, waits) if strategy in ("fsdp", "zero2", "hsdp") else None
    for name, block in blocks:
        initializer.unit(block, name, device)
        if wrap_block:
            wrap_block(block, False)
    initializer.unit(model, ROOT, device)
    if wrap_block:
        wrap_block(model, True)
        return Sharded(model)
    if strategy == "ddp":
        return Replicated(model, device=device, bucket_bytes=plan.bucket_bytes, waits=waits)
    return Plain(model)


def find_blocks(model: nn.Module, hints: ParallelHints) -> list[tuple[str, nn.Module]]:
    """Named blocks of `model`: those that `hints.blocks` matches, else the members of the longest ModuleList."""
    if hints.blocks is not None:
        found = [(name, module) for name, module in model.named_modules() if _matches(name, hints.blocks)]
        if not found:
            names = sorted({name.split(".")[0] for name, _ in model.named_modules() if name})
            raise ConfigError(f"hints.blocks {hints.blocks!r} matches no module; the model's children are {names}")
        return found
    lists = [(name, each) for name, each in model.named_modules() if isinstance(each, nn.ModuleList)]
    name, longest = max(lists, key=lambda pair: len(pair[1]), default=(ROOT, nn.ModuleList()))
    return [(f"{name}.{number}" if name else number, block) for number, block in longest.named_children()]


def _matches(name: str, pattern: str) -> bool:
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def _block_wrapper(plan: Plan, strategy: str, waits: WaitMeter) -> Callable[[nn.Module, bool], None]:
    mesh = shard_mesh(plan.mesh, plan.device)

    def wrap(module: nn.Module, is_root: bool) -> None:
        shard(module, mesh, precision=plan.precision, reshard=strategy != "zero2", is_root=is_root, waits=waits)

    return wrap
