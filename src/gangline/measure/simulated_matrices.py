"""Matrix rules on tensors without values: what ranks ask each other, and what a rule reads, has one answer.

Simulated are matrices that every rank has whole: which part of one each rank holds, only that rank can tell.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gangline.optim.executors.exchange import UpdateExchange
from gangline.optim.executors.matrix_executor import MatrixExecutor
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
    if mesh.dp_shard * mesh.cp * mesh.tp * mesh.pp > 1:
        return f"a memory run does not simulate {rule} where ranks hold parts of the model"
    if plan.memory.offload == "optimizer_nvme":
        return f"a memory run does not simulate {rule} with their state in files"
    return f'a memory run does not simulate {rule} with overlap "forward"' if table.overlaps else ""


@contextmanager
def equal_plans() -> Iterator[None]:
    """Inside, all ranks tell what this one does when optimizers are created."""
    original = UpdateExchange.texts

    def texts(exchange: UpdateExchange, text: str, device: torch.device) -> list[str]:
        del device
        return [text] * exchange.ranks

    UpdateExchange.texts = texts  # type: ignore[assignment,method-assign]  # for as long as this runs
    try:
        yield
    finally:
        UpdateExchange.texts = original  # type: ignore[method-assign]  # as it was before


def without_values(optimizer: MatrixOptimizer) -> None:
    """Let its steps read no values: every parameter has a finite gradient, and counts of steps are no tensors.

    Also turns a warning of torch off, for good: the process simulates one rank.
    """

    def active(executor: MatrixExecutor) -> frozenset[int]:
        return frozenset(range(len(executor.parameters)))

    optimizer._active = active  # type: ignore[method-assign]  # noqa: SLF001  # what a step asks all ranks
    optimizer._is_counted = True  # noqa: SLF001  # likewise, after the first one
    warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")  # for alignment: it is 0
    starts = {"step": 0, "phase": _REFRESHES}
    for state in optimizer.state.values():
        for name in state:
            if (start := starts.get(name.split("::")[-1])) is not None:
                state[name] = _Count(start)


class _Count:
    """As a tensor of one element, to a rule that counts."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __int__(self) -> int:
        return self._value

    def add_(self, other: Any) -> "_Count":
        self._value += int(other)
        return self
