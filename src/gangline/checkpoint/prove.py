"""Digests of full tensors as a plan holds them; `stored` has the other half, digests of what lies in the store."""

from hashlib import sha256

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from gangline.checkpoint.state import live_state
from gangline.checkpoint.torch_types import as_bytes


@torch.no_grad()
def tensor_digests(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> dict[str, str]:
    """SHA-256 of each full tensor's bytes, `model/<name>` and, with an optimizer, `optim/<name>/<state>`.

    Collective over the tensors' own mesh: every rank gets all digests.
    """
    tensors = live_state(model, optimizer).tensors
    return {name: sha256(as_bytes(_full(tensor).cpu())).hexdigest() for name, tensor in sorted(tensors.items())}


def _full(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
