"""Parameter groups of a matrix optimizer: what they must say, the matrices in them, and their options as of a step.

A parameter that is cut among ranks has parts, which the ranks tell each other.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from gangline.errors import ConfigError
from gangline.optim.executors.exchange import UpdateExchange
from gangline.optim.executors.holders import Part, own_part
from gangline.optim.executors.rank_updates import MatrixParameter
from gangline.optim.plan.matrix import FragmentSplit, LogicalMatrix, MatrixStorage, fragments

Group = dict[str, Any]
"""Parameter group of torch, with `names` of its parameters and `kind`: `matrix` or `elementwise`; one of matrices may
have `splits`: name to `FragmentSplit`."""


def require_groups(groups: Sequence[Group]) -> None:
    """
    Raises:
        ConfigError: A kind is unknown, names are missing or claimed twice, a parameter has two, `splits` names what is
            no matrix of its group, or there is no matrix.
    """
    names = Counter(name for each in groups for name in each.get("names", ()))
    for group in groups:
        if group.get("kind") not in ("matrix", "elementwise") or len(group.get("names", ())) != len(group["params"]):
            raise ConfigError(
                "each parameter group has kind 'matrix' or 'elementwise' and a name for each parameter, found "
                f"{ {key: group[key] for key in ('kind', 'names') if key in group} }; partition_params makes such"
                " groups"
            )
    if twice := sorted(name for name, count in names.items() if count > 1):
        raise ConfigError(f"parameters in two groups: {', '.join(twice[:8])}")
    _require_one_name(groups)
    for group in groups:
        matrices = group["names"] if group["kind"] == "matrix" else ()
        if unknown := sorted(group.get("splits", {}).keys() - {*matrices}):
            raise ConfigError(
                f"splits name {', '.join(unknown[:8])}, and the group has no matrix of that name; it has "
                f"{', '.join(sorted(matrices)[:8]) or 'none'}"
            )
    if not any(each["kind"] == "matrix" and each["params"] for each in groups):
        raise ConfigError("the matrix rule has no matrix; check exclude and match, or use an elementwise rule alone")


def _require_one_name(groups: Sequence[Group]) -> None:
    names: dict[Tensor, list[str]] = {}
    for group in groups:
        for name, parameter in zip(group["names"], group["params"], strict=True):
            names.setdefault(parameter, []).append(name)
    if twice := [" and ".join(each) for each in names.values() if len(each) > 1]:
        raise ConfigError(f"one parameter under two names: {', '.join(twice[:8])}; it is updated once, keep one name")


def matrix_parameters(groups: Sequence[Group]) -> Iterator[MatrixParameter]:
    """Parameters of the groups of kind `matrix`."""
    for group in groups:
        if group["kind"] == "matrix":
            for name, parameter in zip(group["names"], group["params"], strict=True):
                yield MatrixParameter(name, parameter, group.get("splits", {}).get(name, FragmentSplit()))


def elementwise_names(groups: Sequence[Group]) -> dict[Tensor, str]:
    """Names of the parameters in groups of kind `elementwise`."""
    others = [group for group in groups if group["kind"] == "elementwise"]
    return {
        parameter: name for other in others for parameter, name in zip(other["params"], other["names"], strict=True)
    }


def options_by_parameter(groups: Sequence[Group]) -> dict[Tensor, Group]:
    """Group of each parameter as it is now: schedules may change it before all updates are applied."""
    found = {}
    for group in groups:
        now = {key: value.clone() if isinstance(value, Tensor) else value for key, value in group.items()}
        found.update(dict.fromkeys(group["params"], now))
    return found


def matrices_of(each: MatrixParameter) -> tuple[LogicalMatrix, ...]:
    """Matrices that its split rule makes, with the placements of the parameter."""
    placements = getattr(each.parameter, "placements", ())
    names = each.parameter.device_mesh.mesh_dim_names if placements else ()  # type: ignore[attr-defined]  # a DTensor
    axes = tuple(
        (name, placement.dim if placement.is_shard() else None)
        for name, placement in zip(names or map(str, range(len(placements))), placements, strict=True)
    )
    dtype = str(each.parameter.dtype).removeprefix("torch.")
    return fragments(
        each.name, tuple(each.parameter.shape), each.split, dtype=dtype, storage=MatrixStorage(axes=axes)
    )  # fmt: skip


def gather_parts(
    parameters: Sequence[MatrixParameter], hosts: UpdateExchange, device: torch.device
) -> list[list[Part]]:
    """What each host holds of each parameter, as the hosts say; collective.

    Raises:
        ConfigError: Their parts of a parameter do not make up the whole.
    """
    own = json.dumps([asdict(own_part(matrix_parameter.parameter)) for matrix_parameter in parameters])
    found = [[Part.of(each) for each in json.loads(text)] for text in hosts.texts(own, device)]
    for at, parameter in enumerate(parameters):
        held = sum(parts[at].elements for parts in found)
        if held != parameter.parameter.numel():
            raise ConfigError(
                f"{parameter.name} of shape {tuple(parameter.parameter.shape)} is cut over {hosts.ranks} ranks that"
                f" hold {held} elements together; a matrix optimizer needs every element on one of them"
            )
    return found
