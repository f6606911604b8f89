"""One training of a task: the runtime owns the loop."""

from collections.abc import Callable
from typing import Any

from gangline.train.context import Context
from gangline.train.initialize import Initializer
from gangline.train.loop.batches import StepData
from gangline.train.loop.engine import Course, Engine
from gangline.train.loop.random import seed_everything
from gangline.train.optimizer import make_optimizer
from gangline.train.parallel.apply import wrap
from gangline.train.parallel.precision import autocast
from gangline.train.task import Batch, Loss, Task, forward_names, hints_of

BUILD_SECONDS = 600.0
"""Silence announced for building a model."""


class Trainer:
    """Model, optimizer and engine of one job; all ranks make the same calls."""

    def __init__(self, context: Context, task: Task, course: Course) -> None:
        plan = context.plan
        self.context, self.task, self.course = context, task, course
        with context.during("build", at_most_seconds=BUILD_SECONDS):
            first = Initializer.build(lambda: task.build_model(dict(plan.model)), seed=course.seed)
            self.wrapped = wrap(first, plan, hints_of(task), device=context.device, waits=context.waits)
            seed_everything(course.seed, rank=context.rank)
            self.engine = Engine(context, self.wrapped, _optimizer(task, self.wrapped.model, context), course)
        self._takes = forward_names(self.wrapped.bare)

    def train(self, data: Any, *, after_step: Callable[[int], None] | None = None) -> None:
        """Step until the course is run or a rank is asked to stop; `after_step` hears of each finished step."""
        context, engine, plan = self.context, self.engine, self.context.plan
        steps = StepData(
            data, seed=self.course.seed, global_batch=plan.global_batch, ranks=context.data_ranks,
            rank=context.data_rank, micro_batch=plan.micro_batch, device=context.device,
        )  # fmt: skip
        self.wrapped.model.train()
        while engine.has_more:
            engine.begin_step()
            span, batches = steps.step(engine.progress.cursor, engine.progress.skipped)
            for number, batch in enumerate(batches):
                is_last = number == steps.num_micro_batches - 1
                self.wrapped.set_sync(is_last)
                engine.update.backward(self._forward(batch), is_last=is_last)
                context.clock.switch("data")
            engine.finish_step(span)
            if after_step is not None and engine.has_more:
                after_step(engine.progress.step)

    def call(self, model: Any, batch: Batch) -> Any:
        """Outputs of `model` for the keys of `batch` that it takes."""
        takes = self._takes
        return model(**(batch if takes is None else {key: value for key, value in batch.items() if key in takes}))

    def _forward(self, batch: Batch) -> Loss:
        context = self.context
        context.phase("forward")
        with autocast(context.plan.precision, context.device, sharded=self.wrapped.sharded):
            loss = self.task.loss(self.call(self.wrapped.model, batch), batch)
        self.engine.update.forward_done()
        return loss


def _optimizer(task: Task, model: Any, context: Context) -> Any:
    plan = context.plan
    if hasattr(task, "build_optimizer"):
        return task.build_optimizer(model, dict(plan.optimizer))
    return make_optimizer(model, plan.optimizer, precision=plan.precision)
