"""Tensors in tuples, lists and dicts, packed and sent to a rank that knows neither their shapes nor structure."""

import json
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from gangline.errors import ConfigError

Structure = Any
"""JSON data: "*" for a tensor, None, or [kind, ...] of a container."""


def flatten(value: Any) -> tuple[Structure, list[Tensor]]:
    """Structure and tensors of `value`, in order.

    Raises:
        ConfigError: It contains anything else.
    """
    if isinstance(value, Tensor):
        return "*", [value]
    if value is None:
        return None, []
    if type(value) in (tuple, list):
        parts = [flatten(each) for each in value]
        kind: list[Any] = [type(value).__name__]
    elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
        parts = [flatten(each) for each in value.values()]
        kind = ["dict", list(value)]
    else:
        raise ConfigError(
            f"stages of a pipeline exchange tensors, and tuples, lists and dicts of them; found {type(value).__name__}"
        )
    return [*kind, [structure for structure, _ in parts]], [tensor for _, tensors in parts for tensor in tensors]


def restore(structure: Structure, tensors: Sequence[Tensor]) -> Any:
    """Inverse of `flatten`."""
    rest = iter(tensors)

    def build(node: Structure) -> Any:
        if node is None or node == "*":
            return node and next(rest)
        children = [build(each) for each in node[-1]]
        if node[0] == "dict":
            return dict(zip(node[1], children, strict=True))
        return tuple(children) if node[0] == "tuple" else children

    return build(structure)


class TensorChannel:
    """Sends values between the ranks of one group; sender and receiver call in the same order."""

    def __init__(self, group: ProcessGroup, device: torch.device) -> None:
        self._group, self._device = group, device

    def send(self, value: Any, to: int) -> None:
        """Send `value` to rank `to` of the group; blocks."""
        header, tensors = _pack(value)
        for tensor in (torch.tensor([len(header)]), header, *tensors):
            dist.send(tensor, group=self._group, group_dst=to)

    def receive(self, sender: int) -> Any:
        """Receive what rank `sender` of the group sent; blocks."""
        length = torch.zeros(1, dtype=torch.int64)
        dist.recv(length, group=self._group, group_src=sender)
        header = torch.empty(int(length), dtype=torch.uint8)
        dist.recv(header, group=self._group, group_src=sender)
        structure, tensors = self._unpack(header)
        for tensor in tensors:
            dist.recv(tensor.detach(), group=self._group, group_src=sender)
        return restore(structure, tensors)

    def share(self, value: Any, sender: int) -> Any:
        """Broadcast the value of rank `sender` of the group; `value` of other ranks is ignored. Collective."""
        here = dist.get_rank(self._group) == sender
        header, tensors = _pack(value) if here else (torch.empty(0, dtype=torch.uint8), [])
        length = torch.tensor([len(header)])
        dist.broadcast(length, group=self._group, group_src=sender)
        if not here:
            header = torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(header, group=self._group, group_src=sender)
        structure, empty = self._unpack(header)
        tensors = tensors if here else empty
        for tensor in tensors:
            dist.broadcast(tensor.detach(), group=self._group, group_src=sender)
        return value if here else restore(structure, tensors)

    def _unpack(self, header: Tensor) -> tuple[Structure, list[Tensor]]:
        structure, layouts = json.loads(bytes(header.tolist()))
        empty = [
            torch.empty(shape, dtype=getattr(torch, name), device=self._device).requires_grad_(wants_grad)
            for name, shape, wants_grad in layouts
        ]
        return structure, empty


def _pack(value: Any) -> tuple[Tensor, list[Tensor]]:
    structure, tensors = flatten(value)
    layouts = [
        (str(tensor.dtype).removeprefix("torch."), list(tensor.shape), tensor.requires_grad) for tensor in tensors
    ]
    header = json.dumps([structure, layouts]).encode()
    return torch.frombuffer(bytearray(header), dtype=torch.uint8), [tensor.detach().contiguous() for tensor in tensors]
