"""Updates that ranks with copies compute together: each takes columns of the matrix, and sums over all are shared."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from gangline.optim.executors.exchange import UpdateExchange
from gangline.optim.executors.holders import ProcessGroups, Ranks
from gangline.optim.plan.optimizer_plan import OptimPlan
from gangline.optim.rules.matrix_rule import Total

ComputePart = Callable[[Tensor, Total], Tensor]
"""Columns of an update from the same columns of the matrix, and what sums a tensor over the team."""


class Team:
    """Ranks that share updates, this one among them; all of them make the same calls in the same order."""

    def __init__(self, exchange: UpdateExchange, leader: int) -> None:
        """`leader`: place in the exchange of the rank that has the matrix and gets the update."""
        self._exchange, self._leader = exchange, leader
        self.is_led = exchange.place == leader
        """Whether this rank leads the team."""

    def update(self, matrix: Tensor, compute: ComputePart) -> Tensor | None:
        """The update on the leader, None elsewhere; collective.

        The longer side is dealt out in nearly equal parts. Sums are exact on all members alike, so that what each of
        them computes of the shorter side is the same.

        Args:
            matrix: Contiguous; of other members than the leader any of that shape, which is overwritten.
            compute: Gets `[shorter side, columns]`.
        """
        self._exchange.broadcast(matrix, self._leader).wait()
        is_tall = matrix.shape[0] > matrix.shape[1]
        wide = matrix.mT if is_tall else matrix
        (rows, columns), members = wide.shape, self._exchange.ranks
        cuts = list(pairwise([columns * member // members for member in range(members + 1)]))
        start, stop = cuts[self._exchange.place]
        part = compute(wide[:, start:stop].contiguous(), self._total)
        size = rows * max(stop - start for start, stop in cuts)
        tensors = torch.split(self._exchange.all_gather(part.flatten(), size).wait(), size)
        if not self.is_led:
            return None
        parts = [
            tensor[: rows * (stop - start)].view(rows, -1) for tensor, (start, stop) in zip(tensors, cuts, strict=True)
        ]
        update = torch.cat(parts, dim=1)
        return (update.mT if is_tall else update).contiguous()

    def _total(self, tensor: Tensor) -> Tensor:
        """Summed in float32 or wider."""
        summed = tensor.to(torch.promote_types(tensor.dtype, torch.float32), copy=True)
        return self._exchange.sum(summed).wait().to(tensor.dtype)


def teams_of(
    plan: OptimPlan, copies: UpdateExchange, ranks: Ranks, process_groups: ProcessGroups
) -> dict[Sequence[int], Team]:
    """Teams that this rank is in, by their places among `copies`; collective over those ranks.

    Args:
        plan: Of all copies.
        copies: Whose traffic counts that of teams, too.
        ranks: Global ranks of the copies.
        process_groups: That exist already.
    """
    found: dict[Sequence[int], Team] = {}
    for team in sorted({matrix.team for matrix in plan.matrices if copies.place in matrix.team}):
        members = sorted(team)
        exchange = UpdateExchange(process_groups.of(tuple(ranks[place] for place in members)))
        exchange.traffic = copies.traffic
        found[team] = Team(exchange, members.index(team[0]))
    return found
