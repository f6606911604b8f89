"""Loads of a checkpoint whose parameters are fused where the model has them split, or the other way round."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from gangline.checkpoint.format.fused_names import fusions
from gangline.checkpoint.format.fused_state import ConvertedState, Numbers, convert
from gangline.checkpoint.format.index import MODEL, OPTIMIZER, Index
from gangline.checkpoint.host_tensors import DTYPES
from gangline.checkpoint.peers import Peers
from gangline.checkpoint.state import LiveState, live_state
from gangline.errors import ConfigError
from gangline.spec.fused_parameters import FusedParameter


def as_model(  # noqa: PLR0917 - what a load has
    index: Index, numbers: Numbers, model: nn.Module, optimizer: torch.optim.Optimizer | None,
    rules: Sequence[FusedParameter], peers: Peers,
) -> ConvertedState:  # fmt: skip
    """The checkpoint by the names of the model; collective.

    Raises:
        ConfigError: On all ranks: a rule does not fit the checkpoint.
    """
    if not rules:
        return ConvertedState(index.tensors, numbers)
    if optimizer is None:  # its state may be of any kind
        index = Index(tensors={name: each for name, each in index.tensors.items() if not name.startswith(OPTIMIZER)})
        numbers = {}
    own = [name.removeprefix(MODEL) for name in live_state(model, None).tensors]
    wanted = peers.union(dict.fromkeys(own, 0))
    stored = [name.removeprefix(MODEL) for name in index.names(MODEL)]
    return peers.run_on_all(lambda: convert(index, numbers, fusions(rules, stored, wanted)))


def equal_values(found: ConvertedState, live: LiveState) -> dict[str, Tensor]:
    """New host tensors to fill with what must be equal for the state of this rank."""
    names = {name for fused, parts in found.equal.items() if fused in live.tensors for name in parts}
    stored = {name: found.tensors[name] for name in sorted(names)}
    return {name: torch.empty(each.shape, dtype=DTYPES[each.dtype]) for name, each in stored.items()}


def require_equal(found: ConvertedState, values: Mapping[str, Tensor]) -> None:
    """
    Raises:
        ConfigError: Parts that are joined have other values than each other.
    """
    for parts in found.equal.values():
        own = {name: values[name].item() for name in parts if name in values}
        if len(set(own.values())) > 1:
            raise ConfigError(f"parts that become one parameter have one state, found {own}")
