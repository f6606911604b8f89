"""The optimizer of a line: `[optimizer.elementwise]` to torch's own classes, options checked by name."""

import inspect
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from gangline.errors import ConfigError
from gangline.spec.plan import Precision

OPTIONS: dict[str, dict[str, Any]] = {
    "adamw": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01},
    "sgd": {"lr": 1e-2, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False},
}
"""Rule to its options and their defaults."""
_CLASSES: dict[str, type[torch.optim.Optimizer]] = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def make_optimizer(model: nn.Module, table: dict[str, Any], *, precision: Precision = "fp32") -> torch.optim.Optimizer:
    """Optimizer over all parameters of the wrapped `model` that want gradients.

    Raises:
        ConfigError: A rule or option that is not there, named with what is.
    """
    rule, options = _read(table)
    require_gradients(model)
    parameters = [each for each in model.parameters() if each.requires_grad]
    fused = precision != "fp16" and all(each.is_floating_point() for each in parameters)
    if fused and not (rule == "sgd" and any(isinstance(each, DTensor) for each in parameters)):
        options["fused"] = True  # torch knows no fused sgd of sharded parameters
    return _CLASSES[rule](parameters, **options)


def require_gradients(model: nn.Module) -> None:
    """
    Raises:
        ConfigError: There is nothing to train.
    """
    if not any(each.requires_grad for each in model.parameters()):
        raise ConfigError(f"no parameter of {type(model).__name__} wants gradients: there is nothing to train")


def require_optimizer(found: Any, source: str) -> torch.optim.Optimizer:
    """`found`, which `source` gave, if the loop can step it.

    Raises:
        ConfigError: It is none of torch's kind, or computes the loss again by itself.
    """
    if not isinstance(found, torch.optim.Optimizer):
        raise ConfigError(f"{source}: wanted a torch.optim.Optimizer, found {type(found).__name__}")
    closure = inspect.signature(found.step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        raise ConfigError(
            f"{source}: {type(found).__name__}.step wants a closure that computes the loss again, and gradients of a "
            "step are computed once, on all ranks; use an optimizer that steps without"
        )
    return found


def _read(table: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if unknown := sorted(table.keys() - {"elementwise"}):
        raise ConfigError(
            f"optimizer.{unknown[0]}: this runtime has optimizer.elementwise only, rules {sorted(OPTIONS)}"
        )
    given = dict(table.get("elementwise", {}))
    rule = given.pop("rule", "adamw")
    if rule not in OPTIONS:
        raise ConfigError(f"optimizer.elementwise.rule: wanted one of {sorted(OPTIONS)}, found {rule!r}")
    known = OPTIONS[rule]
    if unknown := sorted(given.keys() - known.keys()):
        raise ConfigError(f"optimizer.elementwise.{unknown[0]}: {rule} has no such option; it has {sorted(known)}")
    options = {name: _option(name, given.get(name, default), default) for name, default in known.items()}
    return rule, options


def _option(name: str, value: Any, default: Any) -> Any:
    if isinstance(default, tuple):
        if not isinstance(value, (list, tuple)) or len(value) != len(default):
            raise ConfigError(f"optimizer.elementwise.{name}: wanted {len(default)} numbers, found {value!r}")
        return tuple(map(float, value))
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise ConfigError(f"optimizer.elementwise.{name}: wanted true or false, found {value!r}")
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise ConfigError(f"optimizer.elementwise.{name}: wanted a number, 0 or more, found {value!r}")
    return float(value)
