"""What a coordinator and its members exchange of a model: trained parameters and floating buffers, as numpy arrays.

Buffers of whole numbers, as the count of batches in a BatchNorm, stay what they are: a mean of counts counts nothing.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gangline.federated.protocol import Tensors
from gangline.spec.federated import FederatedTable

_ADAM_BETAS, _ADAM_EPS = (0.9, 0.99), 1e-3
"""Betas of FedAdam: Reddi and others, "Adaptive Federated Optimization" (2021)."""


def exchanged_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Tensors of `model` that are exchanged, by name, sorted; they alias the live ones."""
    saved = model.state_dict(keep_vars=True)
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    buffers = {name: tensor for name, tensor in model.named_buffers() if name in saved and tensor.is_floating_point()}
    return dict(sorted((trained | buffers).items()))


def arrays_of(model: nn.Module) -> dict[str, NDArray[np.float32]]:
    """Copies of the exchanged tensors."""
    return {name: tensor.detach().float().cpu().numpy().copy() for name, tensor in exchanged_tensors(model).items()}


@torch.no_grad()
def load_arrays(model: nn.Module, weights: Tensors) -> None:
    """Set the exchanged tensors of `model`, whose names are those of `weights`."""
    for name, tensor in exchanged_tensors(model).items():
        tensor.copy_(torch.from_numpy(np.asarray(weights[name])))


def change_since(model: nn.Module, weights: Tensors) -> dict[str, NDArray[np.float32]]:
    """Exchanged tensors of `model` less `weights`."""
    return {name: array - weights[name] for name, array in arrays_of(model).items()}


def server_optimizer(model: nn.Module, table: FederatedTable) -> torch.optim.Optimizer:
    """Optimizer of the coordinator over the trained parameters: the mean change, negative, is its gradient."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if table.server == "adam":
        return torch.optim.Adam(trained, lr=table.server_lr, betas=_ADAM_BETAS, eps=_ADAM_EPS)
    return torch.optim.SGD(trained, lr=table.server_lr, momentum=table.server_momentum)


@torch.no_grad()
def apply_change(model: nn.Module, optimizer: torch.optim.Optimizer, change: Tensors) -> None:
    """One update of the coordinator; buffers have no rule and take the change itself."""
    for name, tensor in exchanged_tensors(model).items():
        own = torch.from_numpy(np.ascontiguousarray(change[name])).to(tensor)
        if isinstance(tensor, nn.Parameter):
            tensor.grad = -own
        else:
            tensor.add_(own)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
