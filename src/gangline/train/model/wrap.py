"""Wrapping of a model as the plan says: requirements, first weights, the blocks, then the root."""

from collections.abc import Sequence

import torch
from torch import nn

from gangline.errors import ConfigError
from gangline.spec.plan import Plan
from gangline.spec.strategies import effective_strategy
from gangline.train.model.picture import write_model_picture
from gangline.train.parallel.blocks import BlockWrapper
from gangline.train.parallel.call_order import require_no_skips
from gangline.train.parallel.context_parallel import join_sequence
from gangline.train.parallel.data_parallel import ParallelModel
from gangline.train.parallel.expert_parallel import require_experts
from gangline.train.parallel.memory_savings import require_blocks
from gangline.train.parallel.model_parts import find_blocks
from gangline.train.parallel.tensor_rules import require_degree
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.initialization import ROOT, Initializer
from gangline.train.runtime.optimizer import require_gradients
from gangline.train.task import ParallelHints


def wrap(initializer: Initializer, context: RankContext, hints: ParallelHints) -> ParallelModel:
    """Initialize the weights of a model and wrap it as the plan says; all ranks must call.

    Raises:
        ConfigError: The hints name missing blocks, or the plan needs something that this runtime or model cannot do.
    """
    plan, model = context.plan, initializer.model
    effective_strategy(plan.strategy, plan.mesh)
    if plan.mesh.tp > 1:
        require_degree(model, hints, plan.mesh.tp)
    if plan.mesh.ep > 1:
        require_experts(model, hints, plan)
    require_gradients(model)
    require_synced_norm(model, plan)
    write_model_picture(context, model, find_blocks(model, hints), hints)
    if plan.wrapping.is_composable:
        require_no_skips(skips=hints.skips, strategy=repr(plan.strategy))
    if plan.wrapping.shards:
        require_shardable(model, find_blocks(model, hints))
    join_sequence(context, model, hints)
    if plan.mesh.pp > 1:
        from gangline.train.parallel.pipeline.build import build  # brings torch's schedules along

        return build(initializer, context, hints)
    wrapper = BlockWrapper(context, hints)
    blocks = find_blocks(model, hints)
    require_blocks(len(blocks), plan.memory.activation_checkpointing, model)
    for number, (name, block) in enumerate(blocks):
        initializer.unit(block, name, context.device)
        wrapper.block(block, name, number)
    initializer.unit(model, ROOT, context.device)
    wrapper.root(model)
    return wrapper.finish(model)


def require_shardable(model: nn.Module, blocks: Sequence[tuple[str, nn.Module]]) -> None:
    """Refuse scalars, which have no rows to shard, weights of two blocks, and mixed precisions within a block.

    Args:
        model: With its blocks, not wrapped.
        blocks: By name; the rest of the model is one more unit.

    Raises:
        ConfigError: With the names, and what works.
    """
    units: dict[nn.Parameter, tuple[str, str]] = {}
    kinds: dict[str, tuple[str, torch.dtype]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if not parameter.ndim:
            raise ConfigError(
                f"{name} of {type(model).__name__} is a single number, which cannot be shared out over dp_shard or cp; "
                'make it of shape (1,), or use "ddp"'
            )
        unit = next((block for block, _ in blocks if name.startswith(f"{block}.")), "")
        first, home = units.setdefault(parameter, (name, unit))
        if home != unit:
            raise ConfigError(
                f"{name} of {type(model).__name__} is {first} under another name, in another block: what is sharded "
                'over dp_shard or cp belongs to one block; give each its own, or use "ddp"'
            )
        alike, dtype = (
            kinds.setdefault(unit, (name, parameter.dtype)) if parameter.requires_grad else (name, parameter.dtype)
        )
        if dtype != parameter.dtype:
            raise ConfigError(
                f"{name} of {type(model).__name__} is {_dtype_name(parameter.dtype)}, "
                f"{alike} of the same block {_dtype_name(dtype)}: "
                'what is sharded over dp_shard or cp has one precision a block; give it its own block, or use "ddp"'
            )


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def require_synced_norm(model: nn.Module, plan: Plan) -> None:
    """Refuse layers that normalize over all ranks if some ranks do not call them as often, or cannot.

    Raises:
        ConfigError: With the first one's name, and what works.
    """
    name = next((name for name, each in model.named_modules() if isinstance(each, nn.SyncBatchNorm)), None)
    if name is None or plan.world_size == 1:
        return
    if plan.device == "cpu":
        reason = "torch has it for GPUs only"
    elif plan.mesh.pp > 1:
        reason = "ranks of other pipeline stages do not call it"
    elif plan.recovery.stragglers == "rebalance":
        reason = "replicas with rebalanced work do not call it equally often"
    else:
        return
    raise ConfigError(
        f"{name} is a SyncBatchNorm, which synchronizes all ranks in each forward pass, and {reason}; use BatchNorm, "
        "whose statistics are averaged after each step, or GroupNorm"
    )
