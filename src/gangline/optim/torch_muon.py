"""Going on with Muon from what `torch.optim.Muon` saved."""

import warnings
from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from gangline.errors import ConfigError
from gangline.optim.matrix_optimizer import MatrixOptimizer


@torch.no_grad()
def load_torch_muon(optimizer: MatrixOptimizer, state_dict: dict[str, Any], names: Sequence[str]) -> None:
    """Take over each `momentum_buffer` as float32 momentum; options stay those of `optimizer`. Local.

    Args:
        optimizer: Of the rule Muon, with the layout of parameters under which the state was saved.
        state_dict: Of `torch.optim.Muon`.
        names: Of its parameters, in the order of its groups.

    Raises:
        ConfigError: The state has another number of parameters, or lacks the buffer of a matrix; nothing was changed.
    """
    indices = list(chain.from_iterable(each["params"] for each in state_dict["param_groups"]))
    if len(indices) != len(names):
        raise ConfigError(f"the state of torch.optim.Muon has {len(indices)} parameters, found {len(names)} names")
    states = state_dict["state"]
    buffers = {name: states.get(at, {}).get("momentum_buffer") for name, at in zip(names, indices, strict=True)}
    pairs = [
        (_momentum(each.name, optimizer.state[each.parameter], buffers.get(each.name)), buffers[each.name])
        for executor in optimizer.executors
        for each in executor.parameters
    ]
    rounded = any(buffer.dtype == torch.bfloat16 for _, buffer in pairs)
    if rounded and not all(each.get("nesterov", True) for each in state_dict["param_groups"]):
        warnings.warn("without nesterov torch.optim.Muon scales a bfloat16 momentum_buffer in place", stacklevel=2)
    for momentum, buffer in pairs:
        momentum.copy_(buffer)


def _momentum(name: str, state: dict[str, Tensor], buffer: Tensor | None) -> Tensor:
    momentum = state.get("momentum")
    if momentum is None or buffer is None or type(momentum) is not type(buffer) or momentum.shape != buffer.shape:
        here, there = (
            None if each is None else (type(each).__name__, tuple(each.shape)) for each in (momentum, buffer)
        )
        raise ConfigError(f"{name} keeps momentum {here}, torch.optim.Muon has momentum_buffer {there}; they are alike")
    return momentum
