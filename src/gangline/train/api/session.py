"""Session: the services of a gang for PyTorch programs that have their own training loop.

    with Session() as session:
        model = parallelize(build_model(), session)
        optimizer = session.optimizer(model)
        for batch in session.batches(dataset):
            session.backward(loss_of(model, batch))
            if session.step(optimizer) and session.step_number % 100 == 0:
                session.report(**session.evaluate(held_out, errors_of))

Started by a keeper it follows the plan; started by hand it is a gang of one, saves nothing and uses the arguments
given.
"""

import math
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from types import TracebackType
from typing import Any, SupportsFloat

import torch
from torch import Tensor, nn

from gangline.errors import SIGTERM_CODE, ConfigError, TrainingError, UsageError
from gangline.keeper.ipc.environment import RankEnvironment, current_rank
from gangline.spec.gang.status import GangResult, JobResult
from gangline.spec.plan import Job, Plan
from gangline.train import heartbeat
from gangline.train.account.clock import PhaseClock
from gangline.train.account.event_log import EventLog
from gangline.train.account.reports import as_numbers
from gangline.train.account.results import losses_of, write_result
from gangline.train.api.measured_weights import MeasuredWeights
from gangline.train.loop.batches import StepData
from gangline.train.loop.engine import TrainingEngine, TrainingJob
from gangline.train.loop.evaluation import mean_over
from gangline.train.loop.random_state import seed_everything
from gangline.train.loop.sample_order import SampleSpan
from gangline.train.model.wrap import wrap
from gangline.train.parallel.context_parallel import SequenceCut
from gangline.train.parallel.data_parallel import ParallelModel
from gangline.train.parallel.line_optimizer import line_optimizer, place_state
from gangline.train.parallel.precision import COMPUTE
from gangline.train.rank.joining import join, join_single_process
from gangline.train.runtime import context as contexts
from gangline.train.runtime import rendezvous
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.data_splits import fetch_data, program_files
from gangline.train.runtime.datasets import DatasetRows
from gangline.train.runtime.error_classification import describe, exit_code_of
from gangline.train.runtime.initialization import Initializer
from gangline.train.runtime.optimizer import require_optimizer
from gangline.train.task import Batch, Loss, ParallelHints


class Session:
    """One process of a gang, from rendezvous to result; every rank makes the same calls in the same order."""

    def __init__(self, *, steps: int = 100, global_batch: int = 16, seed: int = 1) -> None:
        """The arguments apply when the program runs by itself; in a gang the values of the line do."""
        self._clock = PhaseClock("start")
        self._defaults = {"steps": steps, "global_batch": global_batch, "seed": seed}
        self._context: RankContext | None = None
        self._wrapped: ParallelModel | None = None
        self._hints = ParallelHints()
        self._cut: SequenceCut | None = None
        self._engine: TrainingEngine | None = None
        self._span: SampleSpan | None = None
        self._samples = 0
        self._is_last = False
        self._metrics: dict[str, float] = {}
        self._measured: MeasuredWeights | None = None

    def __enter__(self) -> "Session":
        try:
            environment = current_rank()
            if environment is None:
                self._context = join_single_process(self._clock, **self._defaults)
            else:
                self._context = _join_gang(environment, self._clock)
            fetch_data(self.context)
            seed_everything(self._job.seed)  # the same on all ranks, so that all build the same model
        except BaseException as error:
            self._fail(error)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, trace
        if error is not None:
            self._fail(error)
            return
        if self._engine is not None:
            self._engine.leave_early()
            self._engine.close()
            self._write_result()
        code = SIGTERM_CODE if self.stopped else 0
        self.context.events.emit("done", exit=code, reason="stopped as asked" if code else "finished")
        self.context.close()
        rendezvous.leave()
        if code:
            raise SystemExit(code)

    @property
    def context(self) -> RankContext:
        """Context of this rank. Raises `UsageError` before the `with` block."""
        if self._context is None:
            raise UsageError("enter the Session first: with Session() as session: ...")
        return self._context

    @property
    def plan(self) -> Plan:
        """Plan of the gang; outside a gang, one made of the arguments."""
        return self.context.plan

    @property
    def rank(self) -> int:
        """Number of this process in the gang, from 0."""
        return self.context.rank

    @property
    def world_size(self) -> int:
        """Number of ranks in the gang."""
        return self.plan.world_size

    @property
    def device(self) -> torch.device:
        """Device of this rank, on which `batches` returns its tensors."""
        return self.context.device

    @property
    def seed(self) -> int:
        """Root of all randomness of this training."""
        return self._job.seed

    @property
    def data_files(self) -> list[str]:
        """Paths of the line's data on this node; data sets are fetched whole by this, `dataset` reads what it needs."""
        return program_files(self.context)

    def dataset(self, split: str = "train") -> DatasetRows:
        """Rows of the data sets of the line, as `batches` takes them: `len()`, and `[i]` as a dict of numpy arrays."""
        if self.context.datasets is None:
            raise UsageError("session.dataset: wanted a line with data sets, found none; data.shards names them")
        return self.context.datasets.split(split)

    @property
    def step_number(self) -> int:
        """Last finished step; after `optimizer` that of the checkpoint that was opened, 0 without one."""
        return self._engine.progress.step if self._engine is not None else 0

    @property
    def loss(self) -> float:
        """Mean loss of the last step of this process, over all ranks; NaN before the first."""
        done = self._engine.last if self._engine is not None else None
        return math.nan if done is None else done.loss

    @property
    def stop_asked(self) -> bool:
        """This rank received SIGTERM: `batches` ends with the current step or the next one, the same on all ranks."""
        return self.context.stop_asked

    @property
    def stopped(self) -> bool:
        """There was a stop request: `batches` ended early, the last step is saved, the program should end."""
        return self._engine is not None and self._engine.stopped

    def optimizer(
        self, model: nn.Module, make: Callable[[nn.Module], torch.optim.Optimizer] | None = None
    ) -> torch.optim.Optimizer:
        """Optimizer of the line for `model`, with model and optimizer restored from the newest checkpoint.

        Args:
            model: The model that `parallelize` returned.
            make: Makes the program's own optimizer, with the names of parameters that the program's model has; the
                table `[optimizer]` then has no effect.

        Raises:
            ConfigError: `make` did not return an optimizer, or its step requires a closure.
        """
        if self._wrapped is None or model is not self._wrapped.model:
            raise UsageError(
                "session.optimizer: wanted the model that parallelize(model, session) returned, found another one"
            )
        bare = self._wrapped.bare
        if make is None:
            optimizer = line_optimizer(bare, self.context, self._hints)
        else:
            made = require_optimizer(make(bare), "session.optimizer(model, make)")
            optimizer = place_state(made, self.context)
        steps = (self._job.steps or self.plan.last_step) if self._job.train else 0
        job = TrainingJob(seed=self.seed, steps=steps, number=0 if self.plan.jobs else None)
        self._engine = TrainingEngine(self.context, self._wrapped, optimizer, job)
        self._measured = MeasuredWeights(self._wrapped.model)
        self._engine.saves.on_save = self._measured.saved
        if not self.plan.jobs:
            self._engine.resume()
            if self._engine.saves.last_key is not None:
                self._measured.saved(self.step_number)
        elif self._job.checkpoint is not None:
            self._engine.resume(at=self._job.checkpoint)
        return optimizer

    def batches(self, dataset: Any) -> Iterator[Batch]:
        """This rank's micro-batches of `dataset` (length, samples by number), from the step after `step_number` on."""
        engine, context = self._need_engine(), self.context
        with closing(StepData.of(context, dataset, seed=self.seed, cut=self._cut)) as steps:
            while engine.has_more:
                engine.begin_step()
                self._span, micros = steps.step(*engine.next_samples)
                for number, batch in enumerate(micros):
                    self._is_last = number == steps.num_micro_batches - 1
                    self._samples = len(next(iter(batch.values())))
                    engine.wrapped.set_sync(self._is_last)
                    context.phase("forward")
                    yield batch
                    if self._samples:
                        raise UsageError("call session.backward(loss) once for every batch of session.batches")

    def backward(self, loss: Loss | Tensor) -> None:
        """Add the gradients of one micro-batch: a sum with its weight, or the plain mean over its samples."""
        engine = self._need_engine()
        if isinstance(loss, Tensor):
            loss = Loss(total=loss * self._samples, weight=self._samples)
        engine.update.forward_done()
        engine.update.backward(loss, is_last=self._is_last)
        self._samples = 0

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Update, and save when due, after the last micro-batch of a step; else do nothing. True: a step is finished.

        The loop may be left after it, by all ranks after the same step; that step is then saved.
        """
        del optimizer  # the session has it; the argument keeps the loop readable
        engine, before = self._need_engine(), self.step_number
        if self._is_last and self._span is not None:
            engine.finish_step(self._span)
        return self.step_number > before

    def save(self) -> None:
        """Save a checkpoint at the end of the current step or, between steps, of the next one.

        If one rank calls it, all ranks save and wait until the checkpoint is durable.
        """
        self._need_engine().save_requested = True

    def evaluate(
        self, dataset: Any, measure: Callable[[Batch], Mapping[str, tuple[float | Tensor, float | Tensor]]]
    ) -> dict[str, float]:
        """Means over `dataset`, whose samples the ranks divide; collective, between two steps or after the last.

        Args:
            dataset: Has a length, and samples by number.
            measure: Called without gradients for each batch; gives (sum, weight) by name.

        Raises:
            ConfigError: There are no samples, or the sum of weights is 0.
            NonFiniteError: A mean is not finite.
        """
        self._need_engine().update.settle()
        assert self._wrapped is not None, "an engine has a model"
        found = mean_over(dataset, measure, context=self.context, model=self._wrapped.model, cut=self._cut)
        if self._measured is not None:
            self._measured.evaluated(self.step_number, found)
        return found

    def report(self, **metrics: SupportsFloat) -> None:
        """Report metrics of the model after this step; the last values of each name are the run's.

        They are equal on all ranks; those of rank 0 are recorded.

        Raises:
            UsageError: One is not a number, nor a tensor or array with one element.
        """
        numbers = as_numbers("session.report", metrics)
        self._metrics |= numbers
        if self._measured is not None:
            self._measured.reported(self.step_number, numbers)
        self.context.events.emit("evaluated", step=self.step_number, seed=self.seed, metrics=dict(self._metrics))

    def expect(self, seconds: float) -> None:
        """Announce up to `seconds` without a step: the watchdog waits as long."""
        heartbeat.expect(seconds)

    @property
    def _job(self) -> Job:
        jobs = self.plan.jobs
        if len(jobs) > 1:
            raise ConfigError(f"the plan has {len(jobs)} jobs, but a command runs one; several seeds need a task")
        return jobs[0] if jobs else Job(seed=self.plan.seed)

    def _need_engine(self) -> TrainingEngine:
        if self._engine is None:
            raise UsageError("call session.optimizer(model) before batches, backward and step")
        return self._engine

    def _write_result(self) -> None:
        engine = self._need_engine()
        step = engine.progress.step
        losses = losses_of(self.context.metrics, seed=self.seed, job=engine.job.number)
        saved = engine.saves.last_key
        measured = self._measured.evaluations(saved) if self._measured is not None else ()
        job = JobResult(seed=self.seed, step=step, metrics=self._metrics, losses=losses, evaluations=measured)
        if not self.stopped:
            result = GangResult(role=self.plan.role, final_step=step, checkpoint=saved, jobs=(job,))
            write_result(self.context.metrics, result)

    def _fail(self, error: BaseException) -> None:
        """End the program with the exit code of an error of the gang; an error of the program itself is raised on."""
        code = exit_code_of(error)
        if self._context is not None:
            self._context.fail(code, describe(error))
        if code != TrainingError.exit_code and isinstance(error, Exception):
            traceback.print_exception(error)
            raise SystemExit(code) from error


def _join_gang(environment: RankEnvironment, clock: PhaseClock) -> RankContext:
    events = EventLog(contexts.events_path(environment), rank=environment.rank, generation=environment.generation)
    try:
        return join(environment, Plan.from_json(environment.plan.read_bytes()), clock, events)
    except BaseException as error:
        events.emit("done", exit=exit_code_of(error), reason=describe(error))
        raise


def parallelize(model: nn.Module, session: Session, *, hints: ParallelHints | None = None) -> nn.Module:
    """Wrap `model` as the plan says; collective. All ranks have built it with equal weights, or on the meta device.

    Under fp16 and bf16 its forward pass computes in that precision; the loss is the caller's.
    """
    context = session.context
    hints = hints or ParallelHints()
    first = Initializer(model, seed=session.seed)
    with context.clock.during("build"):
        wrapped = wrap(first, context, hints)
    if context.plan.precision != "fp32" and not wrapped.sharded:
        cast = torch.autocast(context.device.type, COMPUTE[context.plan.precision])
        wrapped.bare.forward = cast(wrapped.bare.forward)
    seed_everything(session.seed, rank=context.draws_as)
    session._hints, session._cut = hints, SequenceCut.of(context, hints)  # noqa: SLF001  # two halves of one interface
    session._wrapped = wrapped  # noqa: SLF001  # two halves of one interface
    return wrapped.model
