"""What the integrations share: a `Program`, and flags and means over all ranks after a step."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import distributed as dist

from gangline.train.api.program import Program


class Joined:
    """One process of a gang; enter it before the library's loop begins, leave it after the last metric."""

    def __init__(self, *, steps: int = 100, global_batch: int = 16, seed: int = 1) -> None:
        """The arguments apply when the program runs by itself; in a gang the values of the line do."""
        self.program = Program(steps=steps, global_batch=global_batch, seed=seed)
        self._leaving = False

    def __enter__(self) -> Self:
        self.program.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.program.__exit__(kind, error, trace)

    @property
    def steps(self) -> int:
        """Optimizer steps of the training: `train.steps` of the line."""
        return self.program.steps

    @property
    def global_batch(self) -> int:
        """Samples of a step over all ranks: `train.global_batch`."""
        return self.program.global_batch

    @property
    def batch_per_rank(self) -> int:
        """Samples of a step on this rank."""
        return max(1, self.program.global_batch // self.program.world_size)

    @property
    def seed(self) -> int:
        """Of this training; a band trains several."""
        return self.program.seed

    @property
    def in_gang(self) -> bool:
        return self.program.in_gang

    def _report(self, metrics: Mapping[str, object]) -> None:
        numbers = {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}
        if numbers:
            self.program.report(**numbers)


def heard_by_all(flag: bool) -> bool:
    """Did any rank say so? Collective where torch.distributed runs, called by all ranks after the same step."""
    return bool(over_ranks(float(flag), op=dist.ReduceOp.MAX))


def mean_over_ranks(value: float) -> float:
    """Collective as `heard_by_all`."""
    count = dist.get_world_size() if _is_distributed() else 1
    return over_ranks(value, op=dist.ReduceOp.SUM) / count


def over_ranks(value: float, *, op: "dist.ReduceOp.RedOpType") -> float:
    """`value` of all ranks as one; collective."""
    if not _is_distributed():
        return value
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    told = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(told, op=op)
    return float(told)


def all_are_here() -> None:
    """Wait for all ranks; collective."""
    heard_by_all(False)


def restored(program: Program, name: str) -> Path | None:
    """What the newest save that verifies kept as `name`; None: begin."""
    folder = program.resume()
    return None if folder is None else folder / name


def _is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized()
