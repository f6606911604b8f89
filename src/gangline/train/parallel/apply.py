"""A model, wrapped as the plan says: what it must fulfil, its first weights, block by block, then the root."""

from gangline.train.context import Context
from gangline.train.initialize import ROOT, Initializer
from gangline.train.model_picture import tell_model
from gangline.train.optimizer import require_gradients
from gangline.train.parallel.activation import require_blocks
from gangline.train.parallel.blocks import BlockWrapper, find_blocks
from gangline.train.parallel.calls import require_no_skips
from gangline.train.parallel.context import join_sequence
from gangline.train.parallel.expert import require_experts
from gangline.train.parallel.model import ParallelModel
from gangline.train.parallel.shardable import require_shardable
from gangline.train.parallel.synced_norm import require_meetings
from gangline.train.parallel.tensor_rules import require_degree
from gangline.train.strategies import effective_strategy, wrapping_of
from gangline.train.task import ParallelHints


def wrap(initializer: Initializer, context: Context, hints: ParallelHints) -> ParallelModel:
    """Give a model its first weights and wrap it as the plan says; all ranks must call.

    Raises:
        ConfigError: The hints name blocks that are not there, or the plan asks for what this runtime cannot do.
    """
    plan, model = context.plan, initializer.model
    effective_strategy(plan)
    if plan.mesh.tp > 1:
        require_degree(model, hints, plan.mesh.tp)
    if plan.mesh.ep > 1:
        require_experts(model, hints, plan)
    require_gradients(model)
    require_meetings(model, plan)
    tell_model(context, model, find_blocks(model, hints), hints)
    if wrapping_of(plan) not in ("none", "ddp", "zero1"):
        require_no_skips(skips=hints.skips, strategy=repr(plan.strategy))
    if wrapping_of(plan) in ("fsdp", "zero2"):
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
