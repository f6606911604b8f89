"""The part of a step that tasks and programs share: everything after its last backward pass.

Checks the step, updates the model, exchanges control messages, saves when it is due, and reports metrics. The caller
provides samples and losses.
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import torch

from gangline.checkpoint.format.manifest import checkpoint_folder
from gangline.errors import IntegrityError, NonFiniteError
from gangline.keeper.ipc.requests import RESIZE_FILE
from gangline.optim.executors.owner_reduction import OwnerReduction
from gangline.spec.gang.status import ResizeRequest, resize_key
from gangline.spec.plan import Plan
from gangline.storage.folder.durable_files import replace_file
from gangline.train import heartbeat
from gangline.train.loop.checkpointing import CheckpointSaves, TrainingProgress
from gangline.train.loop.health_checks import HealthChecks
from gangline.train.loop.learning_rate import rate_function
from gangline.train.loop.matrix_updates import emit_matrix_updates
from gangline.train.loop.nonfinite_policy import NonFinitePolicy
from gangline.train.loop.random_state import generator_state
from gangline.train.loop.sample_order import SampleSpan, Shares
from gangline.train.loop.step import ControlMessage, StepSums, Update
from gangline.train.loop.step_metrics import StepMetrics
from gangline.train.moe import MoE, use_of_experts
from gangline.train.parallel.data_parallel import ParallelModel, Replicated
from gangline.train.parallel.line_optimizer import split_groups_by_mesh
from gangline.train.parallel.local_sgd import is_due
from gangline.train.parallel.precision import grad_scaler
from gangline.train.parameters.worker import WorkerStep, outer_step_of
from gangline.train.profiling.requests import Profiling, RequestWatcher
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.error_classification import defer_peer_loss

SIGTERM_REASON = "SIGTERM: saved and left"
LEDGER_SECONDS = 1.0
"""Interval of ledger writes; a killed rank loses at most this much of its ledger, or one step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingJob:
    """One training of a gang: its seed and its number of steps."""

    seed: int
    steps: int
    number: int | None = None
    """Number of the job in an evaluate or prove gang, which does not save. None: the run's own training."""


def _reduce_to_owners(wrapped: ParallelModel, optimizer: torch.optim.Optimizer, plan: Plan) -> OwnerReduction | None:
    """Let DDP send gradients of matrices to their owners alone, where these alone keep their state."""
    reduction: OwnerReduction | None = getattr(optimizer, "reduction", None)
    if reduction is None or not isinstance(wrapped, Replicated) or plan.compression.kind != "none":
        return None
    wrapped.reduce_by(reduction.average)
    return reduction


class TrainingEngine:
    """Every call is collective unless its docstring says local: all ranks make the same calls in the same order."""

    def __init__(
        self, context: RankContext, wrapped: ParallelModel, optimizer: torch.optim.Optimizer, job: TrainingJob
    ) -> None:
        self.context, self.wrapped, self.optimizer, self.job = context, wrapped, optimizer, job
        plan = context.plan
        split_groups_by_mesh(optimizer)
        self.progress = TrainingProgress(seed=job.seed, shares=plan.shares)
        self._outer = outer_step_of(context, wrapped.bare, optimizer)
        self.saves = CheckpointSaves(context, wrapped.bare, optimizer)
        if self._outer is not None:
            self.saves.add_extra(self._outer)
        self._rate_ratio = rate_function(plan.schedule)
        self.scaler = grad_scaler(plan.precision, context.device)
        self.update = Update(
            wrapped, optimizer, context, scaler=self.scaler, reference=float(plan.global_batch), message=self._message,
            reduction=_reduce_to_owners(wrapped, optimizer, plan),
        )  # fmt: skip
        self._first_step = 0
        """Last step of the checkpoint that this generation began with."""
        self.stopped = False
        """A rank was asked to stop: all ranks have saved and must leave."""
        self.save_requested = False
        """This rank requests a save of the current step; the control message passes it to all ranks."""
        self.last: StepSums | None = None
        """Sums of the last finished step."""
        self.generator_snapshot: tuple[int, dict[str, Any]] | None = None
        """Step, and the random generators as they were after it; None unless recovery is live."""
        self._finite = NonFinitePolicy(mode=plan.recovery.non_finite, max_in_a_row=plan.recovery.max_events)
        self._profiling = Profiling(context, enabled=job.number is None)
        self._health = HealthChecks(context) if job.number is None and plan.world_size > 1 else None
        self._resize_watch = watch_resize_requests(context) if job.number is None else None
        self._metrics = StepMetrics(plan, context.device)
        self._experts = [module for module in wrapped.bare.modules() if isinstance(module, MoE)]
        self._step_began = time.monotonic()

    @property
    def has_more(self) -> bool:
        """Whether steps are left and no rank was asked to stop; local, equal on all ranks."""
        return self.progress.step < self.job.steps and not self.stopped

    @property
    def next_samples(self) -> tuple[int, list[SampleSpan], Shares]:
        """Cursor, skipped spans and shares by replica of the next step."""
        return self.progress.cursor, self.progress.skipped, self.progress.shares

    def resume(self, *, at: str | None = None) -> bool:
        """Resume from the newest checkpoint that verifies, or the one at `at`; False if there is none."""
        progress = self.saves.resume(at=at)
        if progress is not None:
            self.restore(progress)
        if self._outer is not None:
            self.stopped = not self._outer.begin(self.progress)
        self._first_step = self.progress.step
        heartbeat.beat(self.progress.step)
        self.context.book()
        return progress is not None

    def begin_step(self) -> None:
        """Called before the data of a step are fetched."""
        self.context.step = self.progress.step + 1
        if self.context.plan.recovery.mode == "live":
            self.generator_snapshot = self.progress.step, generator_state()
        self.update.buffers.begin()
        self._profiling.before_step(self.context.step)
        self._step_began = time.monotonic()
        self.context.phase("data")

    def finish_step(self, span: SampleSpan) -> None:
        """Called after the last backward pass of the step over the positions of `span`."""
        sums = self._sum_up()
        if sums.message.profile:
            self._profiling.receive()
        step = self.progress.step + 1
        overflow = self.scaler.is_enabled()  # the scaler checks gradients of fp16 itself, equally on all ranks
        named = [] if sums.is_finite else self.update.not_finite()
        norm = 0.0 if overflow else sums.norm
        try:
            answer = self._finite.judge(step=step, loss=sums.loss, norm=norm, span=span, not_finite=named)
        except NonFiniteError as error:
            self.context.events.emit("non_finite", step=step, answer="stop", reason=str(error))
            raise
        if answer == "apply":
            self.update.apply(rate_ratio=self._rate_ratio(step, self.context.plan.steps))
        else:
            self.update.drop()
            self.context.events.emit("non_finite", step=step, answer=answer, samples=list(span))
        if answer == "rollback":
            self._roll_back()
        else:
            self._step_done(span, sums)

    def _message(self) -> ControlMessage:
        """This rank's control message at the end of the current step."""
        return ControlMessage(stop=self.context.stop_asked, save=self.save_requested, profile=self._profiling.requested)

    def _sum_up(self) -> StepSums:
        sums = self.update.sum_up()
        if self._outer is None:
            return sums
        return replace(
            sums, norm=self._outer.agree(sums.norm, loss=sums.loss, weight=sums.weight, device=self.context.device)
        )

    def abandon(self) -> None:
        """The gang lost a rank: stop background threads without collectives; local."""
        self._profiling.close()
        if self._resize_watch is not None:
            self._resize_watch.stop()
        self.saves.abandon()

    def save_again(self) -> None:
        """Save the last finished step if its save is due and was interrupted by the loss of a rank."""
        key = checkpoint_folder(self.context.checkpoints, self.progress.step)
        if self.progress.step and self._is_save_due(ControlMessage()) and self.saves.last_key != key:
            self._save(wait=True)

    @property
    def worker(self) -> WorkerStep | None:
        """Outer steps of a worker of a parameter server; None: this gang is none."""
        return self._outer if isinstance(self._outer, WorkerStep) else None

    def leave_early(self) -> None:
        """The program left the loop before the last step: save the last finished step. Collective."""
        if self.has_more and self.progress.step and self.job.number is None:
            self.saves.wait()
            if self.saves.last_key != checkpoint_folder(self.context.checkpoints, self.progress.step):
                self._outer_step(forced=True)
                self._save(wait=True)

    def close(self) -> None:
        if self._health is not None:
            self._health.close()
        self._profiling.close()
        self.update.settle()
        emit_matrix_updates(self.context, self.optimizer, steps=self.progress.step - self._first_step)
        if self._resize_watch is not None:
            self._resize_watch.stop()
        if self._outer is not None:
            self._outer.close()
        self.saves.close()
        self.context.book()

    def _step_done(self, span: SampleSpan, sums: StepSums) -> None:
        progress, context = self.progress, self.context
        progress.step, progress.cursor, progress.reference = progress.step + 1, span[1], sums.weight
        self.last, message = sums, sums.message
        context.clock.switch("other")
        heartbeat.beat(progress.step)
        self._outer_step(forced=message.stop or message.save)
        save = self._is_save_due(message)
        self._write_curve(sums, now=save)
        if self._health is not None:
            self._health.between_steps(progress, saves=save)
        with defer_peer_loss(context, "checkpoint"):
            if save:
                self._save(wait=message.stop or message.save or progress.step == self.job.steps)
            else:
                self.saves.poll()
        self._report(sums, span)
        self._profiling.after_step(progress.step)
        if self._outer is not None and not message.stop:
            self.stopped = not self._outer.advance(progress)
        if message.stop or self.stopped:
            self.stopped = True
            context.events.emit("stopping", step=progress.step, reason=SIGTERM_REASON)
            context.phase("stop")

    def _outer_step(self, *, forced: bool) -> None:
        """Make the outer step of local SGD or DiLoCo if it is due, at the end, and before a save that cannot wait."""
        step = self.progress.step
        due = step % self.context.plan.outer_interval == 0
        ends = due or step == self.job.steps
        if self._outer is None or not (ends or forced):
            return
        self.context.phase("optimizer")
        self._outer.step(due=ends)
        waited = self.context.waits.take()
        self.context.clock.switch("other")
        self.context.clock.move("optimizer", "wait", waited)
        self.context.events.emit("outer_step", step=step, forced=not due)

    def _is_save_due(self, message: ControlMessage) -> bool:
        step, plan = self.progress.step, self.context.plan
        every = self.context.save_every or plan.checkpoint.every
        due = is_due(step, every=every, outer=plan.outer_interval) or step == self.job.steps
        return self.job.number is None and not plan.worker and (due or message.save or message.stop)

    def _save(self, *, wait: bool) -> None:
        self.save_requested = False
        self.update.settle()
        self.saves.save(self.current_progress(), wait=wait or not self.context.plan.checkpoint.asynchronous)

    def current_progress(self) -> TrainingProgress:
        """Position of the training with the state of scaler and non-finite policy; local."""
        self.progress.scaler = self.scaler.state_dict()
        self.progress.skipped, self.progress.rollbacks = self._finite.skipped, self._finite.rollbacks
        return self.progress

    def _write_curve(self, sums: StepSums, *, now: bool) -> None:
        """Add a line to the loss curve; `now` writes all lines: steps up to a checkpoint are not repeated."""
        step, seconds = self.progress.step, time.monotonic() - self._step_began
        if self.context.metrics is not None:
            line = {
                "seed": self.job.seed, "job": self.job.number, "step": step, "loss": sums.loss,
                "learning_rate": self.update.learning_rate, "gradient_norm": sums.norm,
                "tokens_per_second": self._tokens(sums) / seconds, "step_seconds": seconds,
                **self._metrics.arithmetic(seconds),
            }  # fmt: skip
            self.context.metrics.add(line, now=now)

    def _report(self, sums: StepSums, span: SampleSpan) -> None:
        step, plan = self.progress.step, self.context.plan
        phases = self.context.book(redone=self.job.number is None and step <= self.context.redone_until)
        if self._health is not None:
            with defer_peer_loss(self.context, "pace"):
                self._health.step_done(self.progress, phases, disturbed=self._profiling.is_open)
        self.context.events.emit(
            "step", step=step, loss=sums.loss, learning_rate=self.update.learning_rate, gradient_norm=sums.norm,
            samples=plan.global_batch, span=list(span), tokens=self._tokens(sums), seconds=sum(phases.values()),
            phases=phases, **self._metrics.of_step(step, sum(phases.values())), **use_of_experts(self._experts),
        )  # fmt: skip
        self.context.write_ledger(every_seconds=LEDGER_SECONDS)

    def _tokens(self, sums: StepSums) -> int:
        """Tokens of a step: the weight, if it is a whole number above the samples; else 0."""
        counts = sums.weight > self.context.plan.global_batch and sums.weight.is_integer()
        return int(sums.weight) if counts else 0

    def _roll_back(self) -> None:
        skipped, rollbacks = list(self._finite.skipped), self._finite.rollbacks
        self.saves.wait()
        progress = self.saves.resume() if self.job.number is None else None
        if progress is None:
            raise NonFiniteError(
                f"step {self.progress.step + 1} is not finite, and there is no checkpoint to roll back to; "
                "save earlier (train.checkpoint.every) or lower the rate"
            )
        self.restore(progress)
        self._finite.skipped, self._finite.rollbacks = skipped, rollbacks
        self.progress.skipped = skipped

    def restore(self, found: TrainingProgress) -> None:
        """Continue from `found`; local."""
        self.progress = found
        self.update.buffers.forget()
        self.update.loaded()
        if self._health is not None:
            self._health.resumed(found)
        self._finite.skipped, self._finite.rollbacks = list(found.skipped), found.rollbacks
        if found.reference:
            self.update.reference = found.reference
        if found.scaler:
            self.scaler.load_state_dict(found.scaler)


def watch_resize_requests(context: RankContext) -> RequestWatcher | None:
    """Copy requests for another number of ranks from the store to the keeper; on rank 0 of an elastic gang.

    The keeper decides. Returns the watcher, to be stopped at the end; None on other ranks and gangs.
    """
    store, out = context.store, context.out
    if context.rank or store is None or out is None or not context.plan.sizes:
        return None
    key, target = resize_key(context.plan.run_prefix), out.parent / RESIZE_FILE
    copied: bytes | None = None

    def look() -> bytes | None:
        nonlocal copied
        blob = store.get(key)
        if blob is not None and blob.data != copied:
            copied = blob.data
            copy(copied)
        return copied

    def copy(data: bytes) -> None:
        try:
            request = ResizeRequest.from_json(data)
        except IntegrityError as error:
            context.events.emit("resize_refused", reason=str(error))
            return
        replace_file(target, request.to_json(), durable=False)

    return RequestWatcher(look)
