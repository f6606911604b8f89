"""Base class of the integrations: a `Program`, with flags and means over all ranks."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import distributed as dist

from gangline.errors import UsageError
from gangline.train.account.reports import as_number
from gangline.train.api.measured_weights import fingerprint
from gangline.train.api.program import Program


class Joined:
    """One process of a gang; enter it before the library's loop begins, and leave it after the last metric."""

    def __init__(self, *, steps: int = 100, global_batch: int = 16, seed: int = 1) -> None:
        """The arguments apply when the program runs by itself; in a gang the values of the line do."""
        self.program = Program(steps=steps, global_batch=global_batch, seed=seed)
        self._leaving = False
        self._evaluated = ""
        """Fingerprint of the weights of the last evaluation, on rank 0."""

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
        """Seed of this training; a band runs several trainings."""
        return self.program.seed

    @property
    def in_gang(self) -> bool:
        """The process was started by `gangline run`; otherwise it runs on its own, as one rank."""
        return self.program.in_gang

    def _note_weights(self, model: torch.nn.Module) -> None:
        """Remember the weights of the evaluation that begins, which may be an average; local."""
        if self.in_gang and self.program.rank == 0:
            self._evaluated = fingerprint(dict(model.named_parameters()))

    def _holds_evaluated(self, model: torch.nn.Module) -> bool:
        """Whether `model` has the weights of the last evaluation; false on other ranks than 0."""
        return bool(self._evaluated) and self._evaluated == fingerprint(dict(model.named_parameters()))

    def _report(self, metrics: Mapping[str, float], weights: Iterable[Path] = ()) -> None:
        """Report `metrics`, and with `weights` the files that hold what they were measured on; those that are gone."""
        files = [path for path in weights if path.exists()]
        if metrics:
            self.program.report(weights=files or None, **metrics)


def numbers_of(metrics: Mapping[str, object]) -> dict[str, float]:
    """The numbers among what a library calls its metrics; texts, lists and arrays are not."""
    numbers: dict[str, float] = {}
    for name, value in metrics.items():
        with suppress(UsageError):
            numbers[name] = as_number(name, value)
    return numbers


def any_rank(flag: bool) -> bool:
    """True if `flag` is true on any rank. Collective if torch.distributed is initialized."""
    return bool(_reduce(float(flag), op=dist.ReduceOp.MAX))


def mean_over_ranks(value: float) -> float:
    """Mean of `value` over all ranks; collective as `any_rank`."""
    count = dist.get_world_size() if _is_distributed() else 1
    return _reduce(value, op=dist.ReduceOp.SUM) / count


def _reduce(value: float, *, op: "dist.ReduceOp.RedOpType") -> float:
    """Reduce `value` over all ranks by `op`; collective as `any_rank`."""
    if not _is_distributed():
        return value
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    reduced = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(reduced, op=op)
    return float(reduced)


def wait_for_all() -> None:
    """Wait for all ranks; collective."""
    any_rank(False)


def restored(program: Program, name: str) -> Path | None:
    """Path of `name` in the newest save that verifies; None: there is no save."""
    folder = program.resume()
    return None if folder is None else folder / name


def _is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized()
