"""What all ranks must hold alike before a step, or a collective would hang: the plan, and who has a gradient."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from gangline.errors import ConfigError
from gangline.optim.executors.exchange import UpdateExchange
from gangline.optim.executors.rank_updates import local_part
from gangline.optim.plan.optimizer_plan import OptimPlan


@dataclass(frozen=True, slots=True)
class Gradients:
    """Places of parameters, equal on all ranks."""

    present: frozenset[int]
    """One rank or more has a gradient."""
    not_finite: frozenset[int]
    """A gradient has an element that is infinite or no number."""


@torch.no_grad()
def agree_on_gradients(parameters: Sequence[Tensor], exchanges: Sequence[UpdateExchange]) -> Gradients:
    """One small message per exchange; blocks until all ranks have called."""
    device = local_part(parameters[0]).device
    found = torch.zeros((2, len(parameters)), dtype=torch.int32, device=device)
    grads = {place: local_part(each.grad) for place, each in enumerate(parameters) if each.grad is not None}
    found[0, list(grads)] = 1
    filled = {place: grad for place, grad in grads.items() if grad.numel()}
    if filled:
        largest = torch.stack([each.float() for each in torch._foreach_norm(list(filled.values()), inf)])  # noqa: SLF001  # one kernel, as torch's own clipping
        found[1, list(filled)] = (~largest.isfinite()).to(torch.int32)
    for exchange in exchanges:
        found = exchange.largest(found)
    present, not_finite = (frozenset(row.nonzero().flatten().tolist()) for row in found.cpu())
    return Gradients(present, not_finite)


def require_equal_plans(plan: OptimPlan, exchanges: Sequence[UpdateExchange], device: torch.device) -> None:
    """
    Raises:
        ConfigError: On all ranks: theirs differ.
    """
    for exchange in exchanges:
        hashes = set(exchange.texts(plan.plan_hash, device))
        if len(hashes) > 1:
            raise ConfigError(
                f"ranks planned the optimizer differently: {', '.join(sorted(each[:12] for each in hashes))}; names, "
                "shapes, groups and options must be equal on all ranks"
            )
