"""Head and loss computed by chunk, so that the outputs of a whole batch are never in memory at once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gangline.errors import ConfigError
from gangline.train.parallel.model_parts import resolve
from gangline.train.task import Batch, Loss, ParallelHints

LossOf = Callable[[Any, Batch], Loss]
_KEY = "train.memory.loss_chunks"


class ChunkedLoss:
    """Makes the forward pass of one model return a loss, inside whatever wraps it."""

    def __init__(self, model: nn.Module, hints: ParallelHints, loss: LossOf, *, chunks: int) -> None:
        """`model` is the bare model, whose `forward` is replaced; `loss` is the task's.

        Raises:
            ConfigError: The hints do not name the head.
        """
        name = require_head(model, hints)
        self._model, self._name, self._sequence = model, name, dict(hints.sequence)
        self._loss, self._chunks = loss, chunks
        self._batch: Batch | None = None
        self._inner = inner = model.forward

        @wraps(inner)
        def forward(*args: Any, **kwargs: Any) -> Any:
            return self._forward(*args, **kwargs)

        model.forward = forward

    def of(self, call: Callable[[Batch], Any], batch: Batch) -> Loss:
        """Loss of `batch`; `call` runs the wrapped model on it."""
        self._batch = batch
        try:
            total, weight = call(batch)
        finally:
            self._batch = None
        return Loss(total=total, weight=weight)

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        if self._batch is None:
            return self._inner(*args, **kwargs)
        head = resolve(self._model, self._name, "head")
        with _without_head(self._model, self._name) as seen:
            outputs = self._inner(*args, **kwargs)
        if len(seen) != 1 or outputs is not seen[0]:
            raise ConfigError(
                f"{_KEY}: wanted a forward of {type(self._model).__name__} whose last step is hints.head "
                f"{self._name!r}, called once, found {len(seen)} calls{' and more after them' if seen else ''}; "
                "put everything after the last block into one method"
            )
        loss = loss_by_chunks(outputs, self._batch, head, self._loss, chunks=self._chunks, sequence=self._sequence)
        return loss.total, loss.weight


def require_head(model: nn.Module, hints: ParallelHints) -> str:
    """Name of the method or module that makes outputs of the last block's.

    Raises:
        ConfigError: The hints do not name it, or it is missing.
    """
    if hints.head is None:
        raise ConfigError(
            f"{_KEY}: wanted hints.head, the name of the method or module of {type(model).__name__} that makes outputs "
            "of the last block's, found none; name it in ParallelHints, or set 1"
        )
    resolve(model, hints.head, "head")
    return hints.head


def loss_by_chunks(
    hidden: Tensor, batch: Batch, head: Callable[[Tensor], Any], loss: LossOf, *, chunks: int, sequence: dict[str, int]
) -> Loss:
    """Loss of `head(hidden)`, which is never whole in memory.

    Args:
        hidden: Outputs of the last block.
        batch: Its tensors; those along the cut dimension are cut as well.
        head: Makes outputs of `hidden`.
        loss: Of outputs and their part of the batch.
        chunks: At most one per position.
        sequence: Key of the batch to its sequence dimension; empty: samples are cut instead.

    Raises:
        ConfigError: A named key has another length than `hidden`.
    """

    def run(part: Tensor, own: Batch) -> tuple[Tensor, float | Tensor]:
        outputs = head(part)
        found = loss(outputs.float() if isinstance(outputs, Tensor) else outputs, own)
        return found.total, found.weight

    totals, weights = zip(
        *(checkpoint(run, part, own, use_reentrant=False) for part, own in _chunks(hidden, batch, chunks, sequence)),
        strict=True,
    )
    return Loss(total=torch.stack(totals).sum(), weight=sum(weights))


def _chunks(hidden: Tensor, batch: Batch, chunks: int, sequence: dict[str, int]) -> Iterator[tuple[Tensor, Batch]]:
    dims = _dims(hidden, batch, sequence)
    dim = next(iter(dims.values()), 0)
    count = min(chunks, hidden.shape[dim])
    parts = {key: torch.tensor_split(batch[key], count, dim=own) for key, own in dims.items()}
    for number, part in enumerate(torch.tensor_split(hidden, count, dim=dim)):
        yield part, batch | {key: pieces[number] for key, pieces in parts.items()}


def _dims(hidden: Tensor, batch: Batch, sequence: dict[str, int]) -> dict[str, int]:
    """Key of the batch to the dimension that is cut; the first key's is that of the last block's outputs."""
    dims = {key: dim % batch[key].ndim for key, dim in sequence.items() if key in batch}
    if not dims:
        size = len(hidden)
        return {key: 0 for key, value in batch.items() if isinstance(value, Tensor) and value.shape[:1] == (size,)}
    length = hidden.shape[next(iter(dims.values()))]
    if wrong := {key: tuple(batch[key].shape) for key, dim in dims.items() if batch[key].shape[dim] != length}:
        raise ConfigError(
            f"{_KEY}: hints.sequence {sequence} wants {length} positions as the last block has, found {wrong}"
        )
    return dims


class _PassThrough(nn.Module):
    """Replaces the head: returns its input and records it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def forward(self, hidden: Any) -> Any:
        self.seen.append(hidden)
        return hidden


@contextmanager
def _without_head(model: nn.Module, name: str) -> Iterator[list[Any]]:
    """Replace the module or method `name`, which may be dotted; yields the inputs of its calls."""
    path, _, name = name.rpartition(".")
    stand_in, owner = _PassThrough(), model.get_submodule(path)
    holder: dict[str, Any] = owner._modules if name in owner._modules else vars(owner)  # noqa: SLF001  # setattr would register
    had = holder.get(name)
    holder[name] = stand_in
    try:
        yield stand_in.seen
    finally:
        if had is None:
            del holder[name]
        else:
            holder[name] = had
