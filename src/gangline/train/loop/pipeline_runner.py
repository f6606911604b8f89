"""Forward and backward passes of one step of a pipeline, and the accounting of their time."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from gangline.train.loop.step import Update
from gangline.train.parallel.data_parallel import ParallelModel
from gangline.train.parallel.pipeline.pipelined_model import Inputs, PipelinedModel
from gangline.train.parallel.precision import autocast
from gangline.train.runtime.context import RankContext
from gangline.train.task import Batch, Loss

BUBBLE = "bubble"
"""Phase of a rank that waits for its neighbours in the pipeline."""


class PipelineRunner:
    """Runs steps under a pipeline schedule; all ranks of the pipeline load the same samples."""

    def __init__(
        self, context: RankContext, wrapped: ParallelModel, update: Update, *, loss_of: Callable[[Any, Batch], Loss],
        inputs_of: Callable[[Batch], Inputs],
    ) -> None:  # fmt: skip
        """`loss_of` computes the loss from outputs and batch; `inputs_of` selects what forward takes of a batch."""
        assert isinstance(wrapped, PipelinedModel), "a plan with pp > 1 makes a pipeline"
        self._context, self._wrapped, self._update = context, wrapped, update
        self._loss_of, self._inputs_of = loss_of, inputs_of

    def step(self, batches: Iterator[Batch], count: int) -> None:
        loaded = list(batches)
        assert len(loaded) == count, "a rank has the number of micro-batches that it was given"
        self._context.phase("forward")
        began = time.monotonic()
        self._wrapped.step([self._inputs_of(batch) for batch in loaded], loaded, self._count)
        self._book(time.monotonic() - began)
        self._update.send()
        self._context.clock.switch("data")

    def _count(self, outputs: Any, batch: Batch) -> Tensor:
        """Add the loss of one micro-batch, on the last stage; returns the tensor to run backward from."""
        context = self._context
        with self._wrapped.stopwatch.timing("forward"):
            with autocast(context.plan.precision, context.device, sharded=self._wrapped.sharded):
                loss = self._loss_of(self._wrapped.outputs(outputs), batch)
            return self._update.count(loss)

    def _book(self, seconds: float) -> None:
        """Move backward, waiting and bubble out of the seconds that the clock booked as forward.

        On a GPU all stay there: chunks return long before they are computed.
        """
        clock, stopwatch = self._context.clock, self._wrapped.stopwatch
        forward, backward = stopwatch.lap()
        clock.switch("other")
        if self._context.device.type != "cpu":
            return
        clock.move("forward", BUBBLE, max(0.0, seconds - forward - backward))
        clock.move("forward", "backward", backward)
        clock.move("backward", "wait", self._context.waits.take())
