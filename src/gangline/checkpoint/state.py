"""What of a model and its optimizer is saved: tensors by name, everything else as numbers.

Names are those of the bare model (wrappers of torch leave no trace in them); the tensors alias the live ones, so
filling them loads in place and never casts. It knows DTensors as torch's own state dicts give them, and no strategy:
a rank may hold all names or some of them (a pipeline's stage, its share of an optimizer's state), together they hold
each. The optimizer is read directly: torch's `get_optimizer_state_dict` would first step one that has no state yet, and
refuses one whose state is spread over ranks.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict

from gangline.checkpoint.index import MODEL, OPTIMIZER
from gangline.checkpoint.refused import Refused
from gangline.errors import ConfigError

Numbers = dict[str, Any]

_WRAPPERS = re.compile(r"(_checkpoint_wrapped_module|_orig_mod)\.")
"""What activation checkpointing and compilation put into parameter names; torch's model state has them removed."""


@dataclass(frozen=True, slots=True)
class LiveState:
    """Tensors that alias the model's and the optimizer's own, and the optimizer's numbers."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    numbers: Numbers = field(default_factory=dict)


def live_state(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> LiveState:
    """`model/<name>` and `optim/<name>/<state>` -> tensor, plain or DTensor; `param_groups.<name>.<key>` -> number.

    An optimizer that has not stepped yet has no state tensors and gives none.
    """
    state = LiveState()
    for name, value in get_model_state_dict(model).items():
        if not isinstance(value, Tensor):
            raise ConfigError(f"{name} of the model's state_dict is a {type(value).__name__}; checkpoints hold tensors")
        state.tensors[MODEL + name] = value
    if optimizer is not None:
        held = _holder(optimizer).state
        for _, parameter, name in _parameters(model, optimizer):
            for key, value in held.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    state.tensors[f"{OPTIMIZER}{name}/{key}"] = value
        state.numbers.update((path, _plain(path, holder[key])) for path, holder, key in _numbers(model, optimizer))
    return state


def initialise_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, saved: Collection[str]) -> None:
    """Give an optimizer the state tensors that `saved` names and that are this rank's, to be overwritten; local.

    torch makes them by one step with zero gradients and zero rate. Parameters without saved state (they never got a
    gradient) lose theirs again, so that a resumed run goes on as the unbroken one did.
    """
    with_state = {name.removeprefix(OPTIMIZER).rpartition("/")[0] for name in saved}
    held = _holder(optimizer)
    own = [(parameter, name) for _, parameter, name in _parameters(model, held)]
    if any(name in with_state and not held.state.get(parameter) for parameter, name in own):
        held.state.clear()  # torch's step makes all of it or nothing
        get_optimizer_state_dict(model, held)
    for parameter, name in own:
        if name not in with_state:
            held.state.pop(parameter, None)


def restore_numbers(model: nn.Module, optimizer: torch.optim.Optimizer, numbers: Numbers, *, file: str) -> None:
    """Put saved numbers into the parameter groups and states they came from.

    Raises:
        Refused: A number that the optimizer has is missing in `file`.
    """
    for path, holder, key in list(_numbers(model, optimizer)):
        if path not in numbers:
            raise Refused(file, f"{path} is in the optimizer, but not in the checkpoint")
        value = numbers[path]
        holder[key] = tuple(value) if isinstance(holder[key], tuple) and isinstance(value, list) else value


def _holder(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Whose `state` is this rank's: itself, or the local optimizer that one sharded over ranks keeps as `optim`."""
    inner = getattr(optimizer, "optim", None)
    return inner if isinstance(inner, torch.optim.Optimizer) else optimizer


def _parameters(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> Iterator[tuple[dict[str, Any], nn.Parameter, str]]:
    """(group, parameter, name in the bare model) of all that the optimizer updates."""
    names = {parameter: _WRAPPERS.sub("", name) for name, parameter in model.named_parameters()}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter not in names:
                raise ConfigError(
                    f"the optimizer updates a parameter of shape {tuple(parameter.shape)} that is not in the model; "
                    "pass the module whose parameters it was made of"
                )
            yield group, parameter, names[parameter]


def _numbers(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, dict[str, Any], str]]:
    """(path in the checkpoint, the optimizer's own dictionary, key in it) of everything that is no tensor."""
    held = _holder(optimizer).state
    for group, parameter, name in _parameters(model, optimizer):
        for key in sorted(group.keys() - {"params"}):
            yield f"param_groups.{name}.{key}", group, key
        state = held.get(parameter, {})
        for key, value in state.items():
            if not isinstance(value, Tensor):
                yield f"state.{name}.{key}", state, key


def _plain(path: str, value: Any) -> Any:
    """JSON data of one number; a learning rate kept as a tensor is refused by name."""
    if isinstance(value, tuple):
        return [_plain(path, each) for each in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ConfigError(f"{path} is a {type(value).__name__}; numbers, strings, None and tuples of them are saved")
