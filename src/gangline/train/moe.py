"""A mixture-of-experts layer to use or to copy: each token goes through the few experts that its router chooses.

    self.moe = MoE(width, experts=8, top_k=2)
    mixed, balance = self.moe(x)

`Experts` is what `ParallelHints(experts="layers.*.moe.experts")` may name, and any module like it: its parameters have
one entry an expert along their first dimension, and `forward(rows, counts)` takes the rows of all experts in the order
of experts, with the number of each. Which experts lie on this rank is not its business.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, grouped_mm, linear, one_hot

from gangline.train.attention import sum_over_sequence

_GROUPED_BYTES = 16
"""torch's grouped matrix product needs rows of a multiple of this size."""


class Experts(nn.Module):
    """Two-layer perceptrons, one an expert."""

    def __init__(self, width: int, hidden: int, experts: int) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.empty(experts, width, hidden))
        self.down = nn.Parameter(torch.empty(experts, hidden, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw both weights uniformly, within one over the square root of their input width."""
        for parameter in (self.up, self.down):
            nn.init.uniform_(parameter, -(parameter.shape[1] ** -0.5), parameter.shape[1] ** -0.5)

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """`rows` (n, width): the first `counts[0]` are for expert 0, and so on; outputs in the same order."""
        return _by_group(gelu(_by_group(rows, self.up, counts)), self.down, counts)


class MoE(nn.Module):
    """A router over experts. Without `capacity` no token is dropped, and none depends on what shares its batch."""

    def __init__(
        self, width: int, experts: int, top_k: int = 2, *, hidden: int | None = None, capacity: float | None = None
    ) -> None:
        """`hidden`: width inside an expert, 4 x `width` by default. `capacity`: most rows an expert takes of one rank's
        tokens, to its even share; what comes later in the batch goes past it."""
        super().__init__()
        self.num_experts, self.top_k, self.capacity = experts, top_k, capacity
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = Experts(width, hidden or 4 * width, experts)
        self.load = torch.zeros(experts, dtype=torch.int64)
        """Rows that this rank's tokens sent to each expert in the last pass; a note, not a buffer: not saved."""
        self.num_dropped = 0
        """Rows that found their expert full in the last pass."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`x` (batch, length, width) through its experts, and how unevenly each sample used them, in tokens.

        The second, (batch,), is the tokens of the sample where use is even, more where not; it has a gradient towards
        even use and adds up over any split of a batch or a sequence: a task adds a hundredth of it to its loss.
        """
        shares = self._route(x)
        weights, chosen = shares.topk(self.top_k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        mixed = self._dispatch(x.flatten(0, 1), weights.flatten(0, 1), chosen.flatten(0, 1))
        return mixed.view_as(x), self._balance(shares, chosen)

    def _route(self, x: Tensor) -> Tensor:
        """Share of each expert for each token, in float32 whatever the precision of the rest."""
        with torch.autocast(x.device.type, enabled=False):
            return linear(x.float(), self.router.weight.float()).softmax(-1)

    def _dispatch(self, rows: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """`chosen` (tokens, top_k) experts of each row, weighted; every choice is a slot."""
        expert = chosen.flatten()
        order = expert.argsort(stable=True)
        counts = one_hot(expert, self.num_experts).sum(0)
        order, counts = self._fill(order, counts, expert)
        out = self.experts(rows[order // self.top_k], counts)
        slots = out.new_zeros(len(expert), out.shape[-1]).index_copy(0, order, out)
        weighed = slots.view(-1, self.top_k, slots.shape[-1]) * weights[..., None].to(out.dtype)
        out_rows: Tensor = weighed.sum(1)
        return out_rows

    def _fill(self, order: Tensor, counts: Tensor, expert: Tensor) -> tuple[Tensor, Tensor]:
        """Slots in the order of experts without those that find theirs full, and what each expert takes."""
        self.load, self.num_dropped = counts.detach(), 0
        if self.capacity is None:
            return order, counts
        limit = math.ceil(self.capacity * len(expert) / self.num_experts)
        place = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[expert[order]]
        kept = order[place < limit]
        self.num_dropped = len(order) - len(kept)
        return kept, counts.clamp(max=limit)

    def _balance(self, shares: Tensor, chosen: Tensor) -> Tensor:
        """Switch Transformer's loss, a sample at a time: sum over experts of tokens sent there times the mean share."""
        sent = sum_over_sequence(one_hot(chosen, self.num_experts).sum((1, 2)).to(shares.dtype))
        return self.num_experts * (sent / sent.sum(-1, keepdim=True) * shares.sum(1)).sum(-1)


def use_of_experts(layers: Sequence[MoE]) -> dict[str, float]:
    """Load of experts in this rank's last pass: rows of the busiest of any of `layers` to its even share, and rows
    dropped."""
    if not layers:
        return {}
    loads = torch.stack([layer.load.double() for layer in layers])
    imbalance = (loads.amax(1) / loads.mean(1).clamp(min=1)).max()
    return {"expert_imbalance": float(imbalance), "rows_dropped": sum(layer.num_dropped for layer in layers)}


def _by_group(rows: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    """Each group of `rows` times its own matrix of `weights`."""
    if all(width * rows.element_size() % _GROUPED_BYTES == 0 for width in weights.shape[1:]):
        return grouped_mm(rows, weights, offs=counts.cumsum(0, dtype=torch.int32))
    parts = torch.split(rows, counts.tolist())
    return torch.cat([part @ weight for part, weight in zip(parts, weights, strict=True)])
