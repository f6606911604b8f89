"""Matrix rules on tensors without values: messages between ranks, and what a rule reads, have fixed results.

Simulated are matrices that ranks have whole, and shards that FSDP cuts along one dim: which part of a matrix another
rank holds is computed here, as only that rank could tell.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.tensor import DTensor, Shard

from gangline.optim import matrix_optimizer
from gangline.optim.executors import holders
from gangline.optim.executors.exchange import UpdateExchange
from gangline.optim.executors.holders import Part, part_of
from gangline.optim.executors.rank_updates import MatrixParameter
from gangline.optim.matrix_optimizer import MatrixOptimizer
from gangline.spec.config.matrix_rule import read_matrix_rule
from gangline.spec.plan import Plan

_REFRESHES = 1
"""Number of the second step, whose peak counts: roots and bases of all matrices are computed in it."""


def unfollowed_matrices(plan: Plan) -> str:
    """Why the matrix rule of `plan` cannot be simulated; empty if it can, or if there is none."""
    table, mesh = read_matrix_rule(plan.optimizer), plan.mesh
    if table is None:
        return ""
    rule = f"updates of whole matrices (optimizer.rule {table.rule!r})"
    if mesh.cp * mesh.tp * mesh.pp * mesh.ep > 1:
        return f"a memory run does not simulate {rule} where ranks hold parts of the model, other than shards"
    if plan.memory.offload == "cpu":
        return f"a memory run does not simulate {rule} with shards on the host"
    if plan.memory.offload == "optimizer_nvme":
        return f"a memory run does not simulate {rule} with their state in files"
    return f'a memory run does not simulate {rule} with overlap "forward"' if table.overlaps else ""


@contextmanager
def equal_plans() -> Iterator[None]:
    """Inside, all ranks tell what this one does when optimizers are created, and which shards they have."""
    along = holders._ranks_along  # noqa: SLF001  # a mesh has values, though tensors have none

    def ranks_along(*arguments: Any) -> holders.Ranks:
        with unset_fake_temporarily():
            return along(*arguments)

    def texts(exchange: UpdateExchange, text: str, device: torch.device) -> list[str]:
        del device
        return [text] * exchange.ranks

    def gather_parts(parameters: Sequence[MatrixParameter], hosts: UpdateExchange, _: torch.device) -> list[list[Part]]:
        return [
            [_part(parameter.parameter, host, hosts.ranks) for parameter in parameters] for host in range(hosts.ranks)
        ]

    answers: tuple[tuple[Any, str, Any], ...] = (
        (UpdateExchange, "texts", texts), (holders, "_ranks_along", ranks_along),
        (matrix_optimizer, "gather_parts", gather_parts),
    )  # fmt: skip
    originals = [getattr(owner, name) for owner, name, _ in answers]
    for owner, name, answer in answers:
        setattr(owner, name, answer)
    try:
        yield
    finally:
        for (owner, name, _), original in zip(answers, originals, strict=True):
            setattr(owner, name, original)


def _part(parameter: torch.Tensor, host: int, hosts: int) -> Part:
    """What the rank `host` of `hosts` has: as many rows or columns as each other one, the last of them fewer."""
    shape = tuple(parameter.shape)
    size, offset = [*shape], [0] * len(shape)
    for placement in parameter.placements if isinstance(parameter, DTensor) else ():
        if isinstance(placement, Shard):
            share = -(-shape[placement.dim] // hosts)
            offset[placement.dim] = min(host * share, shape[placement.dim])
            size[placement.dim] = min(share, shape[placement.dim] - offset[placement.dim])
    return part_of(shape, size, offset)


def without_values(optimizer: MatrixOptimizer) -> None:
    """Let its steps read no values: every parameter has a finite gradient, and counts of steps are no tensors.

    Also turns a warning of torch off, for good: the process simulates one rank.
    """

    def agree() -> tuple[list[frozenset[int]], list[torch.Tensor]]:
        return [frozenset(range(len(executor.parameters))) for executor in optimizer.executors], []

    optimizer._gradients.agree = agree  # type: ignore[method-assign]  # noqa: SLF001  # what a step asks all ranks
    optimizer._is_counted = True  # noqa: SLF001  # likewise, after the first one
    warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")  # for alignment: it is 0
    starts = {"step": 0, "phase": _REFRESHES}
    for state in optimizer.state.values():
        for name in state:
            if (start := starts.get(name.split("::")[-1])) is not None:
                state[name] = _Count(start)


class _Count:
    """Stand-in for a tensor of one element, for a rule that counts."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __int__(self) -> int:
        return self._value

    def add_(self, other: Any) -> "_Count":
        self._value += int(other)
        return self
