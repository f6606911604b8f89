"""Placement of optimizer state: whole on every rank, sharded (ZeRO-1), or in files; one parameter group per mesh."""

import inspect
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from gangline.errors import ConfigError
from gangline.train.parallel.state_on_disk import StateOnDisk, StateWindow
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.device_mesh import REPLICATE


def place_state(optimizer: Optimizer, context: RankContext, *, window: type[StateWindow] = StateWindow) -> Optimizer:
    """Place the state of `optimizer`, which has not stepped yet, as the plan says; all ranks must call.

    Args:
        optimizer: Of this rank.
        context: Of the plan.
        window: Keeps state in files.

    Returns:
        The optimizer to step instead, with the same groups and options.

    Raises:
        ConfigError: It does not support that.
    """
    on_disk = context.plan.memory.offload == "optimizer_nvme"
    if not context.plan.wrapping.shares_optimizer:
        return StateOnDisk(optimizer, context.scratch, window=window) if on_disk else optimizer

    shared = shard_optimizer(optimizer, context.meshes.group(REPLICATE))
    if on_disk:
        shared.optim = StateOnDisk(shared.optim, context.scratch, window=window)
    return shared


def shard_optimizer(optimizer: Optimizer, group: ProcessGroup | None) -> ZeroRedundancyOptimizer:
    """The same optimizer over the same parameters, with state for this rank's share only; all ranks must call.

    Args:
        optimizer: Any torch optimizer that has not stepped yet; it is not used further.
        group: Ranks that hold copies of the parameters; None: the whole gang.

    Raises:
        ConfigError: Its class cannot be created from its own options, or parameters differ in dtype.
    """
    kind = type(optimizer)
    takes = inspect.signature(kind).parameters
    options = {name: value for name, value in optimizer.defaults.items() if name in takes}
    groups = [dict(each) for each in optimizer.param_groups]
    try:
        return ZeroRedundancyOptimizer(
            groups, kind, process_group=group, parameters_as_bucket_view=True, **options
        )  # fmt: skip
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"train.strategy zero1: wanted an optimizer that {kind.__name__}(parameters, **{sorted(options)}) creates "
            f"again, over parameters of one dtype; found: {error}; fsdp shards the state of any optimizer"
        ) from error


def split_groups_by_mesh(optimizer: torch.optim.Optimizer) -> None:
    """Split the groups of `optimizer`, which has no state yet, by the meshes of their parameters; local.

    Every group keeps its options, so that the updates stay the same.
    """
    optimizer.param_groups[:] = [part for group in optimizer.param_groups for part in _split(group)]


def _split(group: dict[str, Any]) -> list[dict[str, Any]]:
    found: dict[DeviceMesh | None, list[Tensor]] = {}
    for each in group["params"]:
        found.setdefault(each.device_mesh if isinstance(each, DTensor) else None, []).append(each)
    if len(found) < 2:
        return [group]
    return [group | {"params": parameters} for parameters in found.values()]
