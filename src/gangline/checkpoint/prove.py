"""Digests of full tensors as a plan holds them; `stored` has the other half, digests of what lies in the store."""

from hashlib import sha256

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from gangline.checkpoint.peers import Peers
from gangline.checkpoint.state import live_state
from gangline.checkpoint.torch_types import as_bytes


@torch.no_grad()
def tensor_digests(
    model: nn.Module, optimizer: torch.optim.Optimizer | None = None, *, group: dist.ProcessGroup | None = None
) -> dict[str, str]:
    """SHA-256 of each full tensor's bytes, `model/<name>` and, with an optimizer, `optim/<name>/<state>`.

    Collective over the tensors' own mesh, and over `group`, whose ranks get the digests of all. Without one each rank
    gets those of the names that it holds.
    """
    tensors = live_state(model, optimizer).tensors
    own = {name: sha256(as_bytes(_full(tensor).cpu())).hexdigest() for name, tensor in sorted(tensors.items())}
    return own if group is None else dict(sorted(Peers(group).union(own).items()))


def _full(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
