"""Buckets that every kind of compression works on, and error feedback between steps.

State between steps is stored by parameter name. DDP rearranges its buckets after its first step, also in a resumed run;
state by bucket would then belong to other parameters.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from gangline.train.runtime.torch_compat import GradBucket


@dataclass(frozen=True, slots=True)
class Piece:
    """Gradient of one parameter, or this rank's shard of it."""

    name: str
    grad: Tensor
    """A view into the bucket."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that are averaged together, in one tensor."""

    flat: Tensor
    pieces: Sequence[Piece]
    """They cover `flat`, in order."""


class Compressor(Protocol):
    """A kind of compression; its calls are collective over the ranks of its group. Here it has no state."""

    @abstractmethod
    def average(self, bucket: Bucket) -> torch.futures.Future[Tensor]:
        """Replace `bucket.flat` by (nearly) its mean over the ranks, equal bit for bit on all; the future holds it."""

    def state(self) -> dict[str, Tensor]:
        """State for the next step, of this rank: name -> tensor that aliases the live one."""
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:  # noqa: ARG002  here there is none
        """Restore what `state` returned on this rank."""
        return


def bucket_of_ddp(bucket: GradBucket, names: Mapping[Tensor, str]) -> Bucket:
    """A bucket of DDP; `names` are those of all parameters of the bare model."""
    pairs = zip(bucket.parameters(), bucket.gradients(), strict=True)
    return Bucket(bucket.buffer(), [Piece(names[parameter], grad) for parameter, grad in pairs])


Layout = Sequence[tuple[str, tuple[int, ...]]]
"""Names and local shapes of the parameters of one FSDP group, in the order of their gradients."""


def layout_of_shard(module: nn.Module, prefix: str, *, shards: int) -> Layout:
    """Layout of the gradients that `fully_shard` reduces for `module`, without sharded modules inside it.

    Shards are cut along the first dimension and padded to equal size.
    """
    return [
        (name, (ceil(parameter.shape[0] / shards), *parameter.shape[1:]))
        for name, parameter in _own_parameters(module, prefix).items()
        if parameter.requires_grad
    ]


def bucket_of_shard(flat: Tensor, layout: Layout) -> Bucket:
    """The shards in `flat`; one piece without a shape if other gradients than those of `layout` were reduced."""
    sizes = [prod(shape) for _, shape in layout]
    if sum(sizes) != flat.numel():
        name = layout[0][0] if layout else "none"
        return Bucket(flat, [Piece(f"{name}+{flat.numel()}", flat)])
    parts = torch.split(flat, sizes)
    return Bucket(flat, [Piece(name, part.view(shape)) for (name, shape), part in zip(layout, parts, strict=True)])


def finished(flat: Tensor) -> torch.futures.Future[Tensor]:
    """A completed future of `flat`; on CUDA it depends on the work of the current stream."""
    future: torch.futures.Future[Tensor] = torch.futures.Future(devices=[flat.device] if flat.is_cuda else None)
    future.set_result(flat)
    return future


def _own_parameters(module: nn.Module, prefix: str) -> dict[str, nn.Parameter]:
    """Parameters in the order of FSDP2: those of children first."""
    found: dict[str, nn.Parameter] = {}
    for name, child in module.named_children():
        if not isinstance(child, FSDPModule):
            found |= _own_parameters(child, f"{prefix}{name}.")
    return found | {prefix + name: parameter for name, parameter in module.named_parameters(recurse=False)}


_RESIDUAL = "residual/"


class ErrorFeedback(Compressor):
    """Error feedback: what compression left out of one step's gradients is added to the next's. By name; local."""

    def __init__(self) -> None:
        self._residuals: dict[str, Tensor] = {}

    def add_to(self, piece: Piece) -> None:
        """Add the residual of this parameter to its gradient."""
        residual = self._residuals.get(piece.name)
        if residual is not None and residual.numel() == piece.grad.numel():
            piece.grad.add_(residual.view_as(piece.grad).to(piece.grad.device))

    def keep(self, piece: Piece, residual: Tensor) -> None:
        """Store what was not sent; values that are not finite become 0, or they would spoil all later steps."""
        self._residuals[piece.name] = torch.nan_to_num(residual, nan=0.0, posinf=0.0, neginf=0.0)

    def state(self) -> dict[str, Tensor]:
        return {_RESIDUAL + name: residual for name, residual in self._residuals.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self._residuals = {
            name.removeprefix(_RESIDUAL): residual.clone()
            for name, residual in state.items()
            if name.startswith(_RESIDUAL)
        }
