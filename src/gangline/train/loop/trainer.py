"""One training of a task: the runtime owns the loop."""

from collections.abc import Callable
from typing import Any

from gangline.train.context import Context
from gangline.train.initialize import Initializer
from gangline.train.loop.batches import StepData
from gangline.train.loop.engine import Course, Engine
from gangline.train.loop.random import seed_everything
from gangline.train.loop.runner import LocalRunner, Runner
from gangline.train.optimizer import make_optimizer, require_optimizer
from gangline.train.parallel.apply import wrap
from gangline.train.parallel.context import SequenceCut
from gangline.train.parallel.loss import ChunkedLoss
from gangline.train.parallel.optimizer_state import place_state
from gangline.train.parallel.precision import autocast
from gangline.train.task import Batch, Loss, Task, forward_names, hints_of

BUILD_SECONDS = 600.0
"""Silence announced for building a model."""


class Trainer:
    """Model, optimizer and engine of one job; all ranks make the same calls."""

    def __init__(self, context: Context, task: Task, course: Course) -> None:
        self.context, self.task, self.course = context, task, course
        with context.during("build", at_most_seconds=BUILD_SECONDS):
            first = Initializer.build(lambda: task.build_model(dict(context.plan.model)), seed=course.seed)
            self.wrapped = wrap(first, context, hints_of(task))
            seed_everything(course.seed, rank=context.draws_as)
            self.engine = Engine(context, self.wrapped, _optimizer(task, self.wrapped.bare, context), course)
        self.cut = SequenceCut.of(context, hints_of(task))
        self.runner = self._runner()
        self._takes = forward_names(self.wrapped.bare)
        chunks = context.plan.memory.loss_chunks
        self._chunked = ChunkedLoss(self.wrapped.bare, hints_of(task), task.loss, chunks=chunks) if chunks > 1 else None

    def train(self, data: Any, *, after_step: Callable[[int], None] | None = None) -> None:
        """Step until the course is run or a rank is asked to stop; `after_step` hears of each finished step."""
        context, engine, plan = self.context, self.engine, self.context.plan
        steps = StepData(
            data, seed=self.course.seed, global_batch=plan.global_batch, ranks=context.data_ranks,
            rank=context.data_rank, micro_batch=plan.micro_batch, device=context.device, cut=self.cut,
        )  # fmt: skip
        self.wrapped.model.train()
        while engine.has_more:
            engine.begin_step()
            span, batches = steps.step(*engine.next_samples)
            self.runner.step(batches, steps.num_micro_batches)
            engine.finish_step(span)
            if after_step is not None and engine.has_more:
                after_step(engine.progress.step)

    def call(self, model: Any, batch: Batch) -> Any:
        """Outputs of `model` for the keys of `batch` that it takes."""
        return model(**self._inputs(batch))

    def _inputs(self, batch: Batch) -> Batch:
        takes = self._takes
        return batch if takes is None else {key: value for key, value in batch.items() if key in takes}

    def loss(self, model: Any, batch: Batch) -> Loss:
        """Of `batch` under `model`, wrapped or bare; the outputs never exist whole where the plan has loss chunks."""
        context = self.context
        with autocast(context.plan.precision, context.device, sharded=self.wrapped.sharded):
            if self._chunked is not None:
                return self._chunked.of(lambda whole: self.call(model, whole), batch)
            return self.task.loss(self.call(model, batch), batch)

    def _loss_of(self, batch: Batch) -> Loss:
        return self.loss(self.wrapped.model, batch)

    def _runner(self) -> Runner:
        context, update = self.context, self.engine.update
        if context.plan.mesh.pp == 1:
            return LocalRunner(context, self.wrapped, update, self._loss_of)
        from gangline.train.loop.pipelined import PipelinedRunner  # brings torch's schedules along

        return PipelinedRunner(context, self.wrapped, update, loss_of=self.task.loss, inputs_of=self._inputs)


def _optimizer(task: Task, model: Any, context: Context) -> Any:
    plan = context.plan
    if hasattr(task, "build_optimizer"):
        made = task.build_optimizer(model, dict(plan.optimizer))
        return place_state(require_optimizer(made, f"build_optimizer of {type(task).__name__}"), context)
    return place_state(make_optimizer(model, plan.optimizer, precision=plan.precision), context)
