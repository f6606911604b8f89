"""Elementwise optimizer of a line: torch's class for `[optimizer.elementwise]`, with options checked by name."""

import inspect
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from gangline.errors import ConfigError
from gangline.spec.config.optimizer import read_optimizer
from gangline.spec.plan import Precision

_CLASSES: dict[str, type[torch.optim.Optimizer]] = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def elementwise_optimizer(
    groups: Sequence[dict[str, Any]], table: dict[str, Any], *, precision: Precision = "fp32"
) -> torch.optim.Optimizer:
    """Optimizer over parameter `groups` of a wrapped model.

    Raises:
        ConfigError: An unknown rule or option; the message lists the known ones.
    """
    rule, found = read_optimizer(table)
    options = asdict(found)
    parameters = [each for group in groups for each in group["params"]]
    fused = precision != "fp16" and all(parameter.is_floating_point() for parameter in parameters)
    if fused and not (rule == "sgd" and any(isinstance(parameter, DTensor) for parameter in parameters)):
        options["fused"] = True  # torch has no fused sgd for sharded parameters
    return _CLASSES[rule](groups, **options)


def require_gradients(model: nn.Module) -> None:
    """
    Raises:
        ConfigError: There is nothing to train.
    """
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError(f"no parameter of {type(model).__name__} wants gradients: there is nothing to train")


def require_optimizer(found: Any, source: str) -> torch.optim.Optimizer:
    """Return `found`, which `source` made, if the loop can use it.

    Raises:
        ConfigError: It is not an optimizer of torch, or its step requires a closure.
    """
    if not isinstance(found, torch.optim.Optimizer):
        raise ConfigError(f"{source}: wanted a torch.optim.Optimizer, found {type(found).__name__}")
    closure = inspect.signature(found.step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        raise ConfigError(
            f"{source}: {type(found).__name__}.step wants a closure that computes the loss again, but the "
            "gradients of a step are computed once, on all ranks; use an optimizer that needs no closure"
        )
    return found
