"""Bounds from below that hold for every plan: seconds of a step, bytes of a rank. Pure."""

from gangline.planner.forecast.optimizer_model import ADAMW, OptimizerModel
from gangline.planner.forecast.widths import GRADIENT_BYTES, WEIGHT_BYTES
from gangline.planner.transformer.costs import LOGIT_BYTES, token_costs
from gangline.planner.transformer.layout import SearchSpace
from gangline.planner.transformer.step_time import Hardware
from gangline.spec.transformer import Transformer


def step_flops(model: Transformer, global_batch: int) -> float:
    """Operations of forward and backward on `global_batch` samples, nothing computed twice."""
    costs = token_costs(model)
    return global_batch * model.sequence * 3 * (model.layers * costs.block_flops + costs.head_flops)


def step_bound_seconds(model: Transformer, space: SearchSpace, hardware: Hardware) -> float:
    """No step takes less: all its work, shared evenly over all GPUs that do nothing else."""
    return step_flops(model, space.global_batch) / (space.world_size * hardware.flops_per_second)


def memory_bound_bytes(model: Transformer, space: SearchSpace, *, optimizer: OptimizerModel = ADAMW) -> float:
    """No rank holds less: its share of the state, a block in 16 bits, and one piece of the logits of a sample; the last
    two cut by the largest degrees of the space."""
    state = (WEIGHT_BYTES + GRADIENT_BYTES + optimizer.moment_bytes) * model.parameters + optimizer.owner_bytes
    cut = max(space.tp) * max(space.cp)
    logits = LOGIT_BYTES * model.sequence * model.vocabulary / max(space.loss_chunks) / cut
    kept = token_costs(model).kept_bytes["full"] * model.sequence / cut
    return state / space.world_size + max(logits if max(space.pp) == 1 else 0.0, kept)
