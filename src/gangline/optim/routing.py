"""Parameters of a model as groups of a matrix optimizer, by the kinds of their modules and by their names."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parallel import DistributedDataParallel

from gangline.optim.plan.routing import route_parameters
from gangline.spec.config.matrix_options import Route
from gangline.spec.config.matrix_rule import EXCLUDE
from gangline.spec.profile import ModuleKind, NamedParameter

_WRAPPERS = re.compile(r"(_checkpoint_wrapped_module|_orig_mod)\.")
_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
_NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, _NormBase)


def named_parameters(model: nn.Module) -> Iterator[tuple[NamedParameter, nn.Parameter]]:
    """Parameters that require gradients; one that several modules share counts once, by its first name.

    Names are without the parts that DDP, compilation and activation checkpointing add.
    """
    if isinstance(model, DistributedDataParallel):
        model = model.module
    kinds: dict[nn.Parameter, set[ModuleKind]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        kinds.setdefault(parameter, set()).add(_kind(model.get_submodule(name.rpartition(".")[0])))
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            kind = min(kinds[parameter], key=get_args(ModuleKind).index)
            bare = _WRAPPERS.sub("", name)
            yield NamedParameter(name=bare, shape=tuple(parameter.shape), module=kind), parameter


def _kind(module: nn.Module) -> ModuleKind:
    return "embedding" if isinstance(module, _EMBEDDINGS) else "norm" if isinstance(module, _NORMS) else "other"


def partition_params(
    model: nn.Module, *, exclude: Sequence[str] = EXCLUDE, routes: Sequence[Route] = (), is_part: bool = False
) -> list[dict[str, Any]]:
    """Groups for `MatrixOptimizer`: one of kind `matrix`, then one of kind `elementwise` where there is anything left.

    `is_part`: of a model, as a stage of a pipeline is.

    Raises:
        ConfigError: As `route_parameters`.
    """
    parameters = list(named_parameters(model))
    routed = route_parameters(
        [parameter for parameter, _ in parameters], exclude=exclude, routes=routes, is_part=is_part
    )
    groups: list[dict[str, Any]] = []
    for kind in ("matrix", "elementwise"):
        own = [
            (routed_parameter, parameter)
            for routed_parameter, (_, parameter) in zip(routed, parameters, strict=True)
            if routed_parameter.kind == kind
        ]
        if own:
            groups.append({
                "params": [parameter for _, parameter in own],
                "names": [parameter.parameter.name for parameter, _ in own], "kind": kind,
                "splits": {parameter.parameter.name: parameter.split for parameter, _ in own if kind == "matrix"},
            })  # fmt: skip
    return groups
