"""Forward and backward of one step: micro-batch after micro-batch here, along a pipeline elsewhere."""

from collections.abc import Callable, Iterator
from typing import Protocol

from gangline.train.context import Context
from gangline.train.loop.step import Update
from gangline.train.parallel.model import ParallelModel
from gangline.train.task import Batch, Loss


class Runner(Protocol):
    def step(self, batches: Iterator[Batch], count: int) -> None:
        """Take `count` micro-batches forward and back; the sums of the step are on their way when it returns.

        Collective: every rank of the gang steps, each with its own micro-batches.
        """
        ...


class LocalRunner:
    """The whole model is on this rank, or on it and its tensor-parallel peers."""

    def __init__(
        self, context: Context, wrapped: ParallelModel, update: Update, loss_of: Callable[[Batch], Loss]
    ) -> None:
        """`loss_of` is the forward pass of one micro-batch."""
        self._context, self._wrapped, self._update, self._loss_of = context, wrapped, update, loss_of

    def step(self, batches: Iterator[Batch], count: int) -> None:
        for number, batch in enumerate(batches):
            is_last = number == count - 1
            self._wrapped.set_sync(is_last)
            self._context.phase("forward")
            loss = self._loss_of(batch)
            self._update.forward_done()
            self._update.backward(loss, is_last=is_last)
            self._context.clock.switch("data")
