"""State that an optimizer holds on this rank: created without a step, and compared with what is loaded."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

from gangline.errors import ConfigError


@torch.no_grad()
def step_without_change(optimizer: Optimizer, parameters: Sequence[Tensor]) -> None:
    """A step of zero gradients and rates over `parameters`, the others left out."""
    every = [each for group in optimizer.param_groups for each in group["params"]]
    grads, rates = [each.grad for each in every], [group["lr"] for group in optimizer.param_groups]
    for each in every:
        each.grad = None
    for each in parameters:
        each.grad = torch.zeros_like(each)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    for each, grad in zip(every, grads, strict=True):
        each.grad = grad


def require_alike(name: str, kept: dict[str, Tensor], found: dict[str, Tensor]) -> None:
    """
    Raises:
        ConfigError: They differ in names or shapes.
    """
    here, there = ({key: tuple(each.shape) for key, each in sorted(state.items())} for state in (kept, found))
    if here != there:
        raise ConfigError(
            f"this optimizer keeps {here} of {name} on this rank, the state has {there}; load it with the rule and the "
            "ranks that saved it"
        )
