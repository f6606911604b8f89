"""Global gradient norm under any sharding, and clipping by it."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.nn.utils import get_total_norm

from gangline.optim.executors.rank_updates import local_part

Groups = tuple[ProcessGroup, ...]
_SMALL = 1e-6
"""Added to a norm before it divides, as torch does."""
_CLEARLY_LESS = 0.999
"""Share of the largest norm below which the factor is 1.0 however it is rounded, and the gradients are not touched."""


def align_gradients(parameters: Sequence[Tensor]) -> None:
    """Give gradients the placements of their parameters; collective if tensor-parallel peers hold partial sums."""
    parts: dict[tuple[DeviceMesh, torch.dtype], list[DTensor]] = {}
    for parameter in parameters:
        grad = parameter.grad
        if (
            not (isinstance(parameter, DTensor) and isinstance(grad, DTensor))
            or grad.placements == parameter.placements
        ):
            continue
        if grad.placements == (Partial(),) and parameter.placements == (Replicate(),):
            parts.setdefault((grad.device_mesh, grad.dtype), []).append(parameter)
        else:
            parameter.grad = grad.redistribute(placements=parameter.placements)
    for (mesh, _), part in parts.items():
        _sum_parts(part, mesh)


def global_norm(
    parameters: Sequence[Tensor], *, stages: ProcessGroup | None = None,
    owned: tuple[AbstractSet[Tensor], ProcessGroup] | None = None,
) -> Tensor:  # fmt: skip
    """Euclidean norm of all gradients, equal on all ranks; collective where gradients are sharded or owned.

    Args:
        parameters: Of this rank, with gradients aligned by `align_gradients`.
        stages: Group of ranks that hold other parameters of the model: the stages of a pipeline.
        owned: Parameters whose gradient one rank of a group has alone, and that group.
    """
    pieces = _by_groups(
        [parameter.grad for parameter in parameters if parameter.grad is not None and not _is_in(parameter, owned)]
    )
    if owned is not None:
        pieces[owned[1],] = [
            parameter.grad for parameter in parameters if parameter.grad is not None and _is_in(parameter, owned)
        ]
    if stages is None and not any(pieces):
        return get_total_norm(pieces.get((), []))
    squares = (
        _add_up(pieces, parameters[0].device)
        if pieces
        else torch.zeros((), dtype=torch.float64, device=parameters[0].device)
    )
    if stages is not None:
        dist.all_reduce(squares, group=stages)
    return squares.sqrt().float()


def clip(parameters: Sequence[Tensor], norm: Tensor, *, max_norm: float) -> None:
    """Scale gradients with global norm `norm` down to `max_norm`; local, and no work if it is clearly smaller."""
    if not float(norm) + _SMALL < _CLEARLY_LESS * max_norm:  # NaN is not less
        _multiply(parameters, torch.clamp(max_norm / (norm + _SMALL), max=1.0))


def scale(parameters: Sequence[Tensor], factor: float) -> None:
    """Multiply all gradients by `factor`; local."""
    _multiply(parameters, factor)


def _multiply(parameters: Sequence[Tensor], factor: float | Tensor) -> None:
    locals_ = [local_part(parameter.grad) for parameter in parameters if parameter.grad is not None]
    if locals_:
        torch._foreach_mul_(locals_, factor)


def _sum_parts(parameters: Sequence[DTensor], mesh: DeviceMesh) -> None:
    """Sum all in one collective: such parameters are many and small."""
    pieces = [cast(DTensor, tensor.grad).to_local() for tensor in parameters]
    flat = torch.cat([tensor.flatten() for tensor in pieces])
    dist.all_reduce(flat, group=mesh.get_group())
    totals = torch.split(flat, [tensor.numel() for tensor in pieces])
    for parameter, piece, total in zip(parameters, pieces, totals, strict=True):
        parameter.grad = DTensor.from_local(total.view_as(piece), mesh, [Replicate()], run_check=False)


def _is_in(parameter: Tensor, owned: tuple[AbstractSet[Tensor], ProcessGroup] | None) -> bool:
    return owned is not None and parameter in owned[0]


def _by_groups(grads: Sequence[Tensor]) -> dict[Groups, list[Tensor]]:
    """This rank's gradients, by the groups whose other members hold the other shards."""
    found: dict[Groups, list[Tensor]] = {}
    for grad in grads:
        if isinstance(grad, DTensor):
            cut = [axis for axis, placement in enumerate(grad.placements) if not placement.is_replicate()]
            groups = tuple(grad.device_mesh.get_group(axis) for axis in cut)
            found.setdefault(groups, []).append(grad.to_local())
        else:
            found.setdefault((), []).append(grad)
    return found


def _add_up(pieces: Mapping[Groups, list[Tensor]], device: torch.device) -> Tensor:
    """Sum of all squares, with one collective for each group."""
    squares = torch.stack([get_total_norm(piece).to(device) for piece in pieces.values()]).double() ** 2
    for group in dict.fromkeys(group for groups in pieces for group in groups):
        rows = [row for row, groups in enumerate(pieces) if group in groups]
        part = squares[rows]
        dist.all_reduce(part, group=group)
        squares[rows] = part
    return squares.sum()
