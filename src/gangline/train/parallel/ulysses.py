"""Ulysses attention: during attention each rank has some heads of the whole sequence instead of a part of it.

Tensors are (batch, heads, positions, width). Each head is computed on one rank from all of its keys, by the operator
of a single process, so the bits are those of a single process.
"""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.nn.functional import scaled_dot_product_attention

from gangline.errors import ConfigError
from gangline.train.runtime.torch_compat import all_to_all_single_autograd


class UlyssesAttention:
    """Peers of one sequence that exchange heads; an `attention.Exchange`."""

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group
        self.size = dist.get_world_size(group)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool, scale: float | None, dropout_p: float
    ) -> Tensor:
        _check_heads(query.shape[1], key.shape[1], self.size)
        out = scaled_dot_product_attention(
            self._to_heads(query), self._to_heads(key), self._to_heads(value), dropout_p=dropout_p, is_causal=is_causal,
            scale=scale, enable_gqa=query.shape[1] != key.shape[1],
        )  # fmt: skip
        return self._to_sequence(out)

    def sum(self, part: Tensor) -> Tensor:
        total = part.detach().clone()
        dist.all_reduce(total, group=self._group)
        return total

    def _to_heads(self, part: Tensor) -> Tensor:
        """All positions of a share of the heads."""
        shares = torch.stack(part.chunk(self.size, 1))
        return self._swap(shares).movedim(0, 2).flatten(2, 3)

    def _to_sequence(self, part: Tensor) -> Tensor:
        """All heads of this rank's positions."""
        shares = torch.stack(part.chunk(self.size, 2))
        return self._swap(shares).movedim(0, 1).flatten(1, 2)

    def _swap(self, shares: Tensor) -> Tensor:
        """Send share i of `shares` to rank i; returns the received ones in the order of ranks."""
        return all_to_all_single_autograd(shares, None, None, self._group)


def _check_heads(queries: int, keys: int, size: int) -> None:
    if queries % size or keys % size:
        found = f"{queries} heads" + ("" if keys == queries else f" and {keys} of keys and values")
        raise ConfigError(
            f'train.mesh.context = "ulysses" needs as many heads for each of cp = {size} ranks, found {found}; a '
            'cp that divides them works, and "ring" takes any'
        )
