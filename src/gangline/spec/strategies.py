"""Parallel strategies: what a plan's strategy means for the wrapping of a model. Pure."""

from typing import Literal

from gangline.errors import ConfigError
from gangline.spec.plan import Plan, Strategy, strategy_of

OUTER: frozenset[Strategy] = frozenset({"local_sgd", "diloco"})
"""Replicas go their own way between outer steps: nothing averages their gradients."""
Wrapping = Literal["none", "ddp", "zero1", "replicate", "zero2", "fsdp"]
"""What the data-parallel axes make of a model: nothing, DDP, DDP with a sharded optimizer, copies around tensor
parallelism, `fully_shard` that keeps parameters whole from forward to backward, `fully_shard`."""


def effective_strategy(plan: Plan) -> Strategy:
    """The strategy of `plan` by its name; that of an explicit plan follows from its degrees.

    Raises:
        ConfigError: It is for one rank, and there are more.
    """
    strategy = strategy_of(plan.mesh) if plan.strategy == "explicit" else plan.strategy
    if strategy == "none" and plan.world_size > 1:
        raise ConfigError(f"train.strategy none is for one rank, the plan has {plan.world_size}; use ddp or fsdp")
    return strategy


def wrapping_of(plan: Plan) -> Wrapping:
    """How the data-parallel axes of `plan` wrap a model, inside the other axes."""
    mesh, strategy = plan.mesh, plan.strategy
    if mesh.dp_shard * mesh.cp > 1 or strategy in ("fsdp", "zero2", "hsdp"):
        return "zero2" if strategy == "zero2" or mesh.pp > 1 else "fsdp"
    if mesh.dp_replicate == 1 or strategy in OUTER:
        return "none"
    if mesh.tp > 1 or mesh.pp > 1:  # DDP loses gradients of both, without a word
        return "replicate"
    return "zero1" if strategy == "zero1" else "ddp"
