"""Wrapping of a model as the plan says: requirements, first weights, the blocks, then the root."""

from gangline.spec.strategies import effective_strategy
from gangline.train.model.picture import write_model_picture
from gangline.train.parallel.blocks import BlockWrapper
from gangline.train.parallel.call_order import require_no_skips
from gangline.train.parallel.context_parallel import join_sequence
from gangline.train.parallel.data_parallel import ParallelModel
from gangline.train.parallel.expert_parallel import require_experts
from gangline.train.parallel.memory_savings import require_blocks
from gangline.train.parallel.model_parts import find_blocks
from gangline.train.parallel.model_requirements import require_shardable, require_synced_norm
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
