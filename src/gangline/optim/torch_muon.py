"""Going on with Muon from what `torch.optim.Muon` saved."""

import warnings
from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from gangline.errors import ConfigError
from gangline.optim.executors.rank_updates import local_part
from gangline.optim.executors.torch_names import compute_local_shape_and_global_offset
from gangline.optim.matrix_optimizer import MatrixOptimizer


@torch.no_grad()
def load_torch_muon(optimizer: MatrixOptimizer, state_dict: dict[str, Any], names: Sequence[str]) -> None:
    """Take over each `momentum_buffer` as float32 momentum; options stay those of `optimizer`. Local.

    A buffer is a whole tensor, of which a rank takes the part that it keeps, or a DTensor with the layout of the
    parameter.

    Args:
        optimizer: Of the rule Muon.
        state_dict: Of `torch.optim.Muon`.
        names: Of its parameters, in the order of its groups.

    Raises:
        ConfigError: The state has another number of parameters, or no such buffer of a matrix; nothing was changed.
    """
    indices = list(chain.from_iterable(each["params"] for each in state_dict["param_groups"]))
    if len(indices) != len(names):
        raise ConfigError(f"the state of torch.optim.Muon has {len(indices)} parameters, found {len(names)} names")
    states = state_dict["state"]
    buffers = {name: states.get(at, {}).get("momentum_buffer") for name, at in zip(names, indices, strict=True)}
    if optimizer.rule.spec.state((1, 1)).keys() != {"momentum"}:
        raise ConfigError(f"the optimizer has rule {optimizer.rule.spec.name}, which keeps no momentum as Muon does")
    kept = [
        (parameter.name, optimizer.state[parameter.parameter]["momentum"])
        for executor in optimizer.executors
        for parameter in executor.parameters
        if "momentum" in optimizer.state[parameter.parameter]  # or its owner alone keeps it
    ]
    pairs = [(local_part(momentum), _part(name, momentum, buffers.get(name))) for name, momentum in kept]
    rounded = any(buffer.dtype == torch.bfloat16 for _, buffer in pairs)
    if rounded and not all(each.get("nesterov", True) for each in state_dict["param_groups"]):
        warnings.warn("without nesterov torch.optim.Muon scales a bfloat16 momentum_buffer in place", stacklevel=2)
    for momentum, buffer in pairs:
        momentum.copy_(buffer)


def _part(name: str, momentum: Tensor, buffer: Tensor | None) -> Tensor:
    """What this rank keeps of `buffer`."""
    layout = (momentum.device_mesh, momentum.placements) if isinstance(momentum, DTensor) else None
    theirs = (buffer.device_mesh, buffer.placements) if isinstance(buffer, DTensor) else None
    if buffer is None or momentum.shape != buffer.shape or theirs not in (None, layout):
        here, there = (
            None
            if tensor is None
            else (type(tensor).__name__, tuple(tensor.shape), getattr(tensor, "placements", None))
            for tensor in (momentum, buffer)
        )
        raise ConfigError(
            f"{name} keeps momentum {here}, torch.optim.Muon has momentum_buffer {there}; wanted a whole tensor of "
            "that shape, or a DTensor of that layout"
        )
    if layout is None or theirs is not None:
        return local_part(buffer)
    size, offset = compute_local_shape_and_global_offset(tuple(momentum.shape), *layout)
    return buffer[tuple(slice(start, start + count) for start, count in zip(offset, size, strict=True))]
