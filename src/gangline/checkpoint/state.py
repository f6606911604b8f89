"""State of a model and its optimizer: tensors by name, the rest as numbers; digests of full tensors."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Protocol, runtime_checkable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
from torch.distributed.tensor import DTensor

from gangline.checkpoint.format.index import FRAGMENT, MODEL, OPTIMIZER
from gangline.checkpoint.format.manifest import RefusedCheckpoint
from gangline.checkpoint.host_tensors import as_bytes
from gangline.checkpoint.peers import Peers
from gangline.errors import ConfigError
from gangline.spec.config.matrix_options import RULES
from gangline.spec.config.optimizer import OPTIONS
from gangline.spec.config.option_tables import options_of

Numbers = dict[str, Any]
OPTION_NAMES = frozenset(name for options in (*OPTIONS.values(), *RULES.values()) for name in options_of(options))
"""Numbers of a parameter group that say how it is updated; what else is in a group, such as a count, is state."""

_WRAPPERS = re.compile(r"(_checkpoint_wrapped_module|_orig_mod)\.")
"""Parts of parameter names that activation checkpointing and compilation add; torch's model state omits them."""


@dataclass(frozen=True, slots=True)
class LiveState:
    """Tensors that alias those of model and optimizer, and the optimizer's numbers."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    numbers: Numbers = field(default_factory=dict)


@runtime_checkable
class CreatesState(Protocol):
    """An optimizer whose state a step with zero gradients would not create as it is after real ones."""

    def create_state(self) -> None:
        """Create all state tensors of this rank that do not exist, to be overwritten; local."""
        ...


def live_state(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> LiveState:
    """`model/<name>` and `optim/<name>[::<fragment>]/<state>` -> tensor, plain or DTensor.

    Numbers are `param_groups.<name>.<key>` and `state.<name>.<key>`.
    An optimizer that has not stepped yet has no state tensors and gives none.
    """
    state = LiveState()
    for name, value in get_model_state_dict(model).items():
        if not isinstance(value, Tensor):
            raise ConfigError(f"{name} of the model's state_dict is a {type(value).__name__}; checkpoints hold tensors")
        state.tensors[MODEL + name] = value
    if optimizer is not None:
        state_of = _holder(optimizer).state
        for _, parameter, name in _parameters(model, optimizer):
            for key, value in state_of.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    state.tensors[_tensor_name(name, key)] = value
        state.numbers.update((path, _plain(path, holder[key])) for path, holder, key in _numbers(model, optimizer))
    return state


def _tensor_name(parameter: str, key: str) -> str:
    fragment, _, state = key.rpartition(FRAGMENT)
    return f"{OPTIMIZER}{parameter}{FRAGMENT if fragment else ''}{fragment}/{state}"


def initialise_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, saved: Collection[str]) -> None:
    """Give an optimizer the state tensors that `saved` names and that are this rank's, to be overwritten; local.

    torch creates them by one step with zero gradients and rate. Parameters without saved state (they never got a
    gradient) lose theirs again, so that a resumed run is equal to an unbroken one.
    """
    with_state = {name.removeprefix(OPTIMIZER).rpartition("/")[0].partition(FRAGMENT)[0] for name in saved}
    local = _holder(optimizer)
    own = [(parameter, name) for _, parameter, name in _parameters(model, local)]
    if isinstance(optimizer, CreatesState):
        optimizer.create_state()
    elif any(name in with_state and not local.state.get(parameter) for parameter, name in own):
        local.state.clear()  # torch creates the state of all parameters or of none
        get_optimizer_state_dict(model, local)
    for parameter, name in own:
        if name not in with_state:
            local.state.pop(parameter, None)


def restore_numbers(
    model: nn.Module, optimizer: torch.optim.Optimizer, numbers: Numbers, *, file: str, keeps_options: bool = False
) -> None:
    """Put saved numbers into the parameter groups and states they came from.

    With `keeps_options` the groups keep their options (rates, decays, momenta): another run saved the numbers, and the
    line of this one decides.

    Raises:
        RefusedCheckpoint: A number that the optimizer has is missing in `file`.
    """
    for path, holder, key in list(_numbers(model, optimizer)):
        if keeps_options and path.startswith("param_groups.") and key in OPTION_NAMES:
            continue
        if path not in numbers:
            raise RefusedCheckpoint(file, f"{path} is in the optimizer, but not in the checkpoint")
        value = numbers[path]
        holder[key] = tuple(value) if isinstance(holder[key], tuple) and isinstance(value, list) else value


def _holder(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer whose `state` is this rank's: itself, or the local one inside a sharded one (`optim`)."""
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
    """(path in the checkpoint, the optimizer's own dictionary, key in it) of everything but tensors."""
    state_of = _holder(optimizer).state
    for group, parameter, name in _parameters(model, optimizer):
        for key in sorted(group.keys() - {"params"}):
            yield f"param_groups.{name}.{key}", group, key
        state = state_of.get(parameter, {})
        for key, value in state.items():
            if not isinstance(value, Tensor):
                yield f"state.{name}.{key}", state, key


def _plain(path: str, value: Any) -> Any:
    """JSON data of one number; a tensor, as a learning rate may be, is refused by name."""
    if isinstance(value, tuple):
        return [_plain(path, each) for each in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ConfigError(f"{path} is a {type(value).__name__}; numbers, strings, None and tuples of them are saved")


@torch.no_grad()
def tensor_digests(
    model: nn.Module, optimizer: torch.optim.Optimizer | None = None, *, group: dist.ProcessGroup | None = None
) -> dict[str, str]:
    """SHA-256 of each full tensor's bytes, `model/<name>` and, with an optimizer, `optim/<name>/<state>`.

    Collective over the tensors' own mesh, and over `group`, whose ranks get all digests. Without a group each rank gets
    the digests of the names that it holds.
    """
    tensors = live_state(model, optimizer).tensors
    own = {}
    for name, tensor in sorted(tensors.items()):
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        own[name] = sha256(as_bytes(whole.cpu())).hexdigest()
    return own if group is None else dict(sorted(Peers(group).union(own).items()))
