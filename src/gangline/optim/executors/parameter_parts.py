"""Matrices of a parameter, and the parts of it that the ranks hold among which it is cut."""

import json
from collections.abc import Sequence
from dataclasses import asdict

import torch

from gangline.errors import ConfigError
from gangline.optim.executors.exchange import UpdateExchange
from gangline.optim.executors.holders import Part, own_part
from gangline.optim.executors.rank_updates import MatrixParameter
from gangline.optim.plan.matrix import LogicalMatrix, MatrixStorage, fragments


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
    own = json.dumps([asdict(own_part(each.parameter)) for each in parameters])
    found = [[Part.of(each) for each in json.loads(text)] for text in hosts.texts(own, device)]
    for at, each in enumerate(parameters):
        held = sum(parts[at].elements for parts in found)
        if held != each.parameter.numel():
            raise ConfigError(
                f"{each.name} of shape {tuple(each.parameter.shape)} is cut over {hosts.ranks} ranks that hold {held} "
                "elements together; a matrix optimizer needs every element on one of them"
            )
    return found
