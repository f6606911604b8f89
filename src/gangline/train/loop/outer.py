"""When replicas that drift come together, and what waits for it. Pure."""

from gangline.spec.plan import Plan
from gangline.train.strategies import OUTER


def outer_every(plan: Plan) -> int:
    """Steps from one outer step to the next; 1: replicas are always together."""
    return (plan.compression.outer_steps or 1) if plan.strategy in OUTER else 1


def is_due(step: int, *, every: int, outer: int = 1) -> bool:
    """Is `step` the first at which replicas are together since a multiple of `every` was reached?

    Without outer steps these are the multiples of `every`.
    """
    return step % outer == 0 and step // every > (step - outer) // every
