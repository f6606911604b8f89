"""Which strategies this runtime carries out, and what a mesh means for it. Pure: planners may ask without torch."""

from gangline.errors import ConfigError
from gangline.spec.plan import Plan, Strategy

SUPPORTED: frozenset[Strategy] = frozenset({"none", "ddp", "zero2", "fsdp", "hsdp"})
"""`explicit` is read as one of them."""


def effective_strategy(plan: Plan) -> Strategy:
    """The strategy of `plan` as this runtime names it.

    Raises:
        ConfigError: It asks for an axis or a strategy that is not there.
    """
    other = {name: degree for name, degree in plan.mesh.axes.items() if degree > 1 and not name.startswith("dp_")}
    if other:
        raise ConfigError(f"plan {plan.name}: wanted {other}, this runtime has dp_replicate and dp_shard; leave them 1")
    strategy = _of_mesh(plan) if plan.strategy == "explicit" else plan.strategy
    if strategy not in SUPPORTED:
        raise ConfigError(f"train.strategy {strategy!r} cannot be run here; use one of {sorted(SUPPORTED)}")
    if strategy == "none" and plan.world_size > 1:
        raise ConfigError(f"train.strategy none is for one rank, the plan has {plan.world_size}; use ddp or fsdp")
    return strategy


def _of_mesh(plan: Plan) -> Strategy:
    match plan.mesh.dp_replicate > 1, plan.mesh.dp_shard > 1:
        case True, True:
            return "hsdp"
        case False, True:
            return "fsdp"
        case True, False:
            return "ddp"
        case _:
            return "none"
