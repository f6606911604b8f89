"""The optimizer of a line's table, and where its state is: whole on every rank, sharded (ZeRO-1), or in files.

It is elementwise, or a matrix rule together with an elementwise one.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from gangline.errors import ConfigError
from gangline.optim.matrix_optimizer import MatrixOptimizer
from gangline.optim.plan.optimizer_plan import PlanOptions
from gangline.optim.plan.work import device_curve
from gangline.optim.routing import partition_params
from gangline.optim.rules.matrix_rule import MatrixRule
from gangline.spec.config.matrix_rule import (
    OVERLAP_WHILE_LIVE,
    OWNER_STATE_WHILE_LIVE,
    MatrixRuleTable,
    read_matrix_rule,
)
from gangline.train.parallel.model_parts import find_blocks
from gangline.train.parallel.state_on_disk import MatrixStateOnDisk, StateOnDisk, StateWindow
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.device_mesh import REPLICATE
from gangline.train.runtime.optimizer import elementwise_optimizer, require_gradients
from gangline.train.task import ParallelHints


def line_optimizer(
    model: nn.Module, context: RankContext, hints: ParallelHints, *, window: type[StateWindow] = StateWindow
) -> Optimizer:
    """Optimizer over all parameters of the wrapped `model` that require gradients, its state placed as the plan says.

    Collective.

    Args:
        model: Bare; of a pipeline this rank's part.
        context: Of the plan.
        hints: They say which modules of the model are blocks.
        window: Keeps state in files.

    Raises:
        ConfigError: An unknown rule or option, or one of the plan's that does not go with it.
    """
    require_gradients(model)
    table, precision = context.plan.optimizer, context.plan.precision

    def elementwise(groups: list[dict[str, Any]]) -> Optimizer:
        return place_state(elementwise_optimizer(groups, table, precision=precision), context, window=window)

    matrix = read_matrix_rule(table)
    if matrix is None:
        return elementwise([{"params": [parameter for parameter in model.parameters() if parameter.requires_grad]}])
    optimizer = _matrix_optimizer(model, context, matrix, elementwise, window)
    if matrix.overlaps:
        optimizer.overlap_forward(model, units=[block for _, block in find_blocks(model, hints)])
    return optimizer


def _matrix_optimizer(
    model: nn.Module, context: RankContext, table: MatrixRuleTable,
    elementwise: Callable[[list[dict[str, Any]]], Optimizer], window: type[StateWindow],
) -> MatrixOptimizer:  # fmt: skip
    plan = context.plan
    if table.overlaps and plan.recovery.mode == "live":
        raise ConfigError(OVERLAP_WHILE_LIVE)
    rule = make_rule(table)
    if plan.recovery.mode == "live" and not table.repeats and _has_owner_state(rule):
        raise ConfigError(OWNER_STATE_WHILE_LIVE.format(rule=table.rule))
    groups = partition_params(model, exclude=table.exclude, routes=table.routes, is_part=plan.mesh.pp > 1)
    options = PlanOptions.of(table.plan, device_curve(context.device.type, table.cost))
    return MatrixOptimizer(
        groups, rule=rule, elementwise=elementwise,
        replicas=None if plan.averages_rarely else context.meshes.group(REPLICATE),
        options=options, shares_state=plan.wrapping.shares_optimizer, files=_files(groups, context, window),
    )  # fmt: skip


def _files(groups: list[dict[str, Any]], context: RankContext, window: type[StateWindow]) -> MatrixStateOnDisk | None:
    if context.plan.memory.offload != "optimizer_nvme":
        return None
    matrices = [each for group in groups if group["kind"] == "matrix" for each in group["params"]]
    return MatrixStateOnDisk(matrices, context.scratch, window=window)


def _has_owner_state(rule: MatrixRule) -> bool:
    return any(where == "owner" for _, _, where in rule.spec.state((1, 1)).values())


def make_rule(table: MatrixRuleTable) -> MatrixRule:
    """The rule of a line with its options.

    Raises:
        ConfigError: There is no such class in the code layer, or it does not take these options.
    """
    module_name, _, class_name = _CLASSES.get(table.rule, table.rule).partition(":")
    try:
        made = getattr(importlib.import_module(module_name), class_name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ConfigError(f"optimizer.rule {table.rule!r}: {error}; wanted a class of the code layer") from error
    options = table.options if isinstance(table.options, Mapping) else asdict(table.options)
    try:
        rule = made(**options)
    except TypeError as error:
        raise ConfigError(f"optimizer.rule {table.rule!r} with {sorted(options)}: {error}") from error
    if not isinstance(rule, MatrixRule):
        raise ConfigError(f"optimizer.rule {table.rule!r}: wanted a MatrixRule, found {type(rule).__name__}")
    return rule


_CLASSES = {
    "muon": "gangline.optim.rules.muon:Muon",
    "shampoo": "gangline.optim.rules.shampoo:Shampoo",
    "soap": "gangline.optim.rules.soap:Soap",
}


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
    groups = [dict(param_group) for param_group in optimizer.param_groups]
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
