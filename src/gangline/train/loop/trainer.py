"""Training of a task: the runtime owns the loop."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Protocol

import torch

from gangline.train.loop.batches import StepData
from gangline.train.loop.engine import TrainingEngine, TrainingJob
from gangline.train.loop.random_state import seed_everything
from gangline.train.loop.step import Update
from gangline.train.model.exchanged import server_optimizer
from gangline.train.model.wrap import wrap
from gangline.train.parallel.chunked_loss import ChunkedLoss
from gangline.train.parallel.context_parallel import SequenceCut
from gangline.train.parallel.data_parallel import ParallelModel
from gangline.train.parallel.line_optimizer import line_optimizer, place_state
from gangline.train.parallel.precision import autocast
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.initialization import Initializer
from gangline.train.runtime.optimizer import elementwise_optimizer, require_gradients, require_optimizer
from gangline.train.task import Batch, Loss, Task, forward_names, hints_of


class StepRunner(Protocol):
    """Runs the forward and backward passes of a step."""

    def step(self, batches: Iterator[Batch], count: int) -> None:
        """Run forward and backward passes of `count` micro-batches and send the sums of the step.

        Collective: every rank of the gang steps, each with its own micro-batches.
        """
        ...


class MicroBatchRunner:
    """Runs micro-batches one after another; the whole model is on this rank and its tensor-parallel peers."""

    def __init__(
        self, context: RankContext, wrapped: ParallelModel, update: Update, loss_of: Callable[[Batch], Loss]
    ) -> None:
        """`loss_of` computes the loss of one micro-batch, forward pass included."""
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


BUILD_SECONDS = 600.0
"""Time announced to the watchdog for building a model."""


class Trainer:
    """Model, optimizer and engine of one job; all ranks make the same calls."""

    def __init__(self, context: RankContext, task: Task, job: TrainingJob) -> None:
        self.context, self.task, self.job = context, task, job
        with context.during("build", at_most_seconds=BUILD_SECONDS):
            first = Initializer.build(lambda: task.build_model(dict(context.plan.model)), seed=job.seed)
            self.wrapped = wrap(first, context, hints_of(task))
            seed_everything(job.seed, rank=context.draws_as)
            self.engine = TrainingEngine(context, self.wrapped, _optimizer(task, self.wrapped.bare, context), job)
        self.cut = SequenceCut.of(context, hints_of(task))
        self.runner = self._runner()
        self._takes = forward_names(self.wrapped.bare)
        chunks = context.plan.memory.loss_chunks
        self._chunked = ChunkedLoss(self.wrapped.bare, hints_of(task), task.loss, chunks=chunks) if chunks > 1 else None

    def train(self, data: Any, *, after_step: Callable[[int], None] | None = None) -> None:
        """Step until the job is done or a rank is asked to stop; `after_step` is called with each step but the last."""
        steps = StepData.of(self.context, data, seed=self.job.seed, cut=self.cut)
        with closing(steps):
            engine = self.engine
            self.wrapped.model.train()
            while engine.has_more:
                engine.begin_step()
                span, batches = steps.step(*engine.next_samples)
                self.runner.step(batches, steps.num_micro_batches)
                engine.finish_step(span)
                if after_step is not None and engine.has_more:
                    after_step(engine.progress.step)

    def call(self, model: Any, batch: Batch) -> Any:
        """Outputs of `model` for the keys of `batch` that forward takes."""
        return model(**self._inputs(batch))

    def _inputs(self, batch: Batch) -> Batch:
        takes = self._takes
        return batch if takes is None else {key: value for key, value in batch.items() if key in takes}

    def loss(self, model: Any, batch: Batch) -> Loss:
        """Loss of `batch` under `model`, wrapped or bare; with loss chunks the outputs are never whole in memory."""
        context = self.context
        with autocast(context.plan.precision, context.device, sharded=self.wrapped.sharded):
            if self._chunked is not None:
                return self._chunked.of(lambda whole: self.call(model, whole), batch)
            return self.task.loss(self.call(model, batch), batch)

    def _loss_of(self, batch: Batch) -> Loss:
        return self.loss(self.wrapped.model, batch)

    def _runner(self) -> StepRunner:
        context, update = self.context, self.engine.update
        if context.plan.mesh.pp == 1:
            return MicroBatchRunner(context, self.wrapped, update, self._loss_of)
        from gangline.train.loop.pipeline_runner import PipelineRunner  # brings torch's schedules along

        return PipelineRunner(context, self.wrapped, update, loss_of=self.task.loss, inputs_of=self._inputs)


def _optimizer(task: Task, model: Any, context: RankContext) -> Any:
    """Optimizer of the gang: that of the line, or of a federation that of its coordinator."""
    plan = context.plan
    if plan.federation is not None:
        return place_state(server_optimizer(model, plan.federation.table), context)
    if hasattr(task, "build_optimizer"):
        return place_state(_own_optimizer(task, model, context), context)
    return line_optimizer(model, context, hints_of(task))


def local_optimizer(task: Task, model: Any, context: RankContext) -> torch.optim.Optimizer:
    """Fresh optimizer of the line over a whole model on this rank, as a member of a federation trains; local.

    Raises:
        ConfigError: An unknown rule or option, or nothing to train.
    """
    if hasattr(task, "build_optimizer"):
        return _own_optimizer(task, model, context)
    require_gradients(model)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return elementwise_optimizer([{"params": parameters}], context.plan.optimizer, precision=context.plan.precision)


def _own_optimizer(task: Any, model: Any, context: RankContext) -> torch.optim.Optimizer:
    made = task.build_optimizer(model, dict(context.plan.optimizer))
    return require_optimizer(made, f"build_optimizer of {type(task).__name__}")
