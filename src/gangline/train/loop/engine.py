"""The part of a training that is the same for a task and for a program: what happens after the last backward of a step.

Judge the step, update, tell the others and hear them, save when it is time, write down what was seen. Where samples and
losses come from is left to the caller.
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import torch

from gangline.checkpoint.format.manifest import checkpoint_folder
from gangline.errors import IntegrityError, NonFiniteError
from gangline.keeper.ipc.requests import RESIZE_FILE
from gangline.spec.gang.status import ResizeRequest, resize_key
from gangline.storage.folder.durable_files import replace_file
from gangline.train import heartbeat
from gangline.train.loop.checkpointing import CheckpointSaves, TrainingProgress
from gangline.train.loop.health_checks import HealthChecks
from gangline.train.loop.learning_rate import rate_function
from gangline.train.loop.nonfinite_policy import NonFinitePolicy
from gangline.train.loop.random_state import generator_state
from gangline.train.loop.sample_order import SampleSpan, Shares
from gangline.train.loop.step import ControlMessage, StepSums, Update
from gangline.train.loop.step_metrics import StepMetrics, arithmetic
from gangline.train.moe import MoE, use_of_experts
from gangline.train.parallel.data_parallel import ParallelModel
from gangline.train.parallel.local_sgd import is_due, make_outer_step
from gangline.train.parallel.optimizer_state import split_groups_by_mesh
from gangline.train.parallel.precision import grad_scaler
from gangline.train.profiling.requests import Profiling, RequestWatcher
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.error_classification import defer_peer_loss

SIGTERM_REASON = "SIGTERM: saved and left"
LEDGER_SECONDS = 1.0
"""What a killed rank did in its last moments is booked by its keeper; so long are they at most, or a step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingJob:
    """Which training this is among those of a gang, and how far it goes."""

    seed: int
    steps: int
    job: int | None = None
    """Number of the job in an evaluate or prove gang; they do not save. None: the run's own training."""


class TrainingEngine:
    """Collective but where it says otherwise: all ranks make the same calls in the same order."""

    def __init__(
        self, context: RankContext, wrapped: ParallelModel, optimizer: torch.optim.Optimizer, course: TrainingJob
    ) -> None:
        self.context, self.wrapped, self.optimizer, self.course = context, wrapped, optimizer, course
        plan = context.plan
        split_groups_by_mesh(optimizer)
        self.progress = TrainingProgress(seed=course.seed)
        self._outer = make_outer_step(context, wrapped.bare, optimizer)
        self.saves = CheckpointSaves(context, wrapped.bare, optimizer)
        if self._outer is not None:
            self.saves.carry(self._outer)
        self._rate_ratio = rate_function(plan.schedule)
        self.scaler = grad_scaler(plan.precision, context.device)
        self.update = Update(
            wrapped, optimizer, context, scaler=self.scaler, reference=float(plan.global_batch), word=self._word
        )
        self.stopped = False
        """A rank was asked to stop: all saved and must leave."""
        self.save_asked = False
        """This rank wants the step under way, or the next one, saved; all hear it and do so."""
        self.last: StepSums | None = None
        """Of the step that was done last."""
        self.drawn: tuple[int, dict[str, Any]] | None = None
        """Random generators as they were after a step, before the next; None where nobody will ask."""
        self._finite = NonFinitePolicy(mode=plan.recovery.non_finite, max_in_a_row=plan.recovery.max_events)
        self._profiling = Profiling(context, enabled=course.job is None)
        self._answers = HealthChecks(context) if course.job is None and plan.world_size > 1 else None
        self._wishes = watch_resize_requests(context) if course.job is None else None
        self._figures = StepMetrics(plan, context.device)
        self._experts = [each for each in wrapped.bare.modules() if isinstance(each, MoE)]
        self._step_began = time.monotonic()

    @property
    def has_more(self) -> bool:
        return self.progress.step < self.course.steps and not self.stopped

    @property
    def next_samples(self) -> tuple[int, list[SampleSpan], Shares]:
        """Of the next step: from which position, without which, dealt how."""
        return self.progress.cursor, self.progress.skipped, self.progress.shares

    def resume(self, *, at: str | None = None) -> bool:
        """Go on from the newest good checkpoint, or the one at `at`; False: there is none."""
        found = self.saves.resume(at=at)
        if found is not None:
            self.take(found)
        heartbeat.beat(self.progress.step)
        self.context.book()
        return found is not None

    def begin_step(self) -> None:
        """Before its data are fetched."""
        self.context.step = self.progress.step + 1
        if self.context.plan.recovery.mode == "live":
            self.drawn = self.progress.step, generator_state()
        self.update.buffers.begin()
        self._profiling.before_step(self.context.step)
        self._step_began = time.monotonic()
        self.context.phase("data")

    def finish_step(self, span: SampleSpan) -> None:
        """After the last backward of the step over the positions of `span`."""
        sums = self._sum_up()
        if sums.heard.profile:
            self._profiling.heard()
        step = self.progress.step + 1
        overflow = self.scaler.is_enabled()  # the scaler judges the gradients of fp16 itself, alike on all ranks
        try:
            answer = self._finite.judge(step=step, loss=sums.loss, norm=0.0 if overflow else sums.norm, span=span)
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

    def _word(self) -> ControlMessage:
        """What this rank has to say to all at the end of the step under way."""
        return ControlMessage(stop=self.context.stop_asked, save=self.save_asked, profile=self._profiling.asked)

    def _sum_up(self) -> StepSums:
        sums = self.update.sum_up()
        if self._outer is None:
            return sums
        return replace(sums, norm=self._outer.agree(sums.norm, self.context.device))

    def abandon(self) -> None:
        """The gang has come apart: end what runs beside the training, ask nobody; local."""
        self._profiling.close()
        if self._wishes is not None:
            self._wishes.stop()
        self.saves.abandon()

    def save_anew(self) -> None:
        """Save the step that was done last, if it is one to be saved and the gang came apart in it."""
        key = checkpoint_folder(self.context.checkpoints, self.progress.step)
        if self.progress.step and self._is_save_due(ControlMessage()) and self.saves.last_key != key:
            self._save(wait=True)

    def leave_early(self) -> None:
        """The loop was left before its last step: see that the step that was done last is saved. Collective."""
        if self.has_more and self.progress.step and self.course.job is None:
            self.saves.settle()
            if self.saves.last_key != checkpoint_folder(self.context.checkpoints, self.progress.step):
                self._come_together(forced=True)
                self._save(wait=True)

    def close(self) -> None:
        if self._answers is not None:
            self._answers.close()
        self._profiling.close()
        if self._wishes is not None:
            self._wishes.stop()
        self.saves.close()
        self.context.book()

    def _step_done(self, span: SampleSpan, sums: StepSums) -> None:
        progress, context = self.progress, self.context
        progress.step, progress.cursor, progress.reference = progress.step + 1, span[1], sums.weight
        self.last, heard = sums, sums.heard
        context.clock.switch("other")
        heartbeat.beat(progress.step)
        self._come_together(forced=heard.stop or heard.save)
        save = self._is_save_due(heard)
        self._draw(sums, now=save)
        if self._answers is not None:
            self._answers.between_steps(progress, saves=save)
        with defer_peer_loss(context, "checkpoint"):
            if save:
                self._save(wait=heard.stop or heard.save or progress.step == self.course.steps)
            else:
                self.saves.poll()
        self._report(sums, span)
        self._profiling.after_step(progress.step)
        if heard.stop:
            self.stopped = True
            context.events.emit("stopping", step=progress.step, reason=SIGTERM_REASON)
            context.phase("stop")

    def _come_together(self, *, forced: bool) -> None:
        """The outer step, where replicas drift: every so often, at the end, and before a save that cannot wait."""
        step = self.progress.step
        due = step % self.context.plan.outer_interval == 0
        if self._outer is None or not (due or forced or step == self.course.steps):
            return
        self.context.phase("optimizer")
        self._outer.step()
        waited = self.context.waits.take()
        self.context.clock.switch("other")
        self.context.clock.move("optimizer", "wait", waited)
        self.context.events.emit("outer_step", step=step, forced=not due)

    def _is_save_due(self, heard: ControlMessage) -> bool:
        step, plan = self.progress.step, self.context.plan
        due = is_due(step, every=plan.checkpoint.every, outer=plan.outer_interval) or step == self.course.steps
        return self.course.job is None and (due or heard.save or heard.stop)

    def _save(self, *, wait: bool) -> None:
        self.save_asked = False
        self.saves.save(self.noted(), wait=wait or not self.context.plan.checkpoint.asynchronous)

    def noted(self) -> TrainingProgress:
        """Where the training stands, complete: to be saved, or kept; local."""
        self.progress.scaler = self.scaler.state_dict()
        self.progress.skipped, self.progress.rollbacks = self._finite.skipped, self._finite.rollbacks
        return self.progress

    def _draw(self, sums: StepSums, *, now: bool) -> None:
        """A line of the curve; those up to a checkpoint are written before it, for no later generation redoes them."""
        step, seconds = self.progress.step, time.monotonic() - self._step_began
        if self.context.metrics is not None:
            line = {
                "seed": self.course.seed, "job": self.course.job, "step": step, "loss": sums.loss,
                "learning_rate": self.update.learning_rate, "gradient_norm": sums.norm,
                "tokens_per_second": self._tokens(sums) / seconds, "step_seconds": seconds,
                **arithmetic(self.context.plan, seconds),
            }  # fmt: skip
            self.context.metrics.add(line, now=now)

    def _report(self, sums: StepSums, span: SampleSpan) -> None:
        step, plan = self.progress.step, self.context.plan
        phases = self.context.book(redone=self.course.job is None and step <= self.context.redone_until)
        if self._answers is not None:
            with defer_peer_loss(self.context, "pace"):
                self._answers.step_done(self.progress, phases, disturbed=self._profiling.is_open)
        self.context.events.emit(
            "step", step=step, loss=sums.loss, learning_rate=self.update.learning_rate, gradient_norm=sums.norm,
            samples=plan.global_batch, span=list(span), tokens=self._tokens(sums), seconds=sum(phases.values()),
            phases=phases, **self._figures.of_step(step, sum(phases.values())), **use_of_experts(self._experts),
        )  # fmt: skip
        self.context.tell_ledger(every_seconds=LEDGER_SECONDS)

    def _tokens(self, sums: StepSums) -> int:
        """A loss whose weight counts more than samples counts tokens; 0 where there is no such notion."""
        counts = sums.weight > self.context.plan.global_batch and sums.weight.is_integer()
        return int(sums.weight) if counts else 0

    def _roll_back(self) -> None:
        skipped, rollbacks = list(self._finite.skipped), self._finite.rollbacks
        self.saves.settle()
        found = self.saves.resume() if self.course.job is None else None
        if found is None:
            raise NonFiniteError(
                f"step {self.progress.step + 1} is not finite, and there is no checkpoint to roll back to; "
                "save earlier (train.checkpoint.every) or lower the rate"
            )
        self.take(found)
        self._finite.skipped, self._finite.rollbacks = skipped, rollbacks
        self.progress.skipped = skipped

    def take(self, found: TrainingProgress) -> None:
        """Go on from `found`; local."""
        self.progress = found
        self.update.buffers.forget()
        self.update.loaded()
        if self._answers is not None:
            self._answers.resumed(found)
        self._finite.skipped, self._finite.rollbacks = list(found.skipped), found.rollbacks
        if found.reference:
            self.update.reference = found.reference
        if found.scaler:
            self.scaler.load_state_dict(found.scaler)


def watch_resize_requests(context: RankContext) -> RequestWatcher | None:
    """Rank 0 of an elastic gang looks for one beside its training, until the lookout is stopped; others do not."""
    store, out = context.store, context.out
    if context.rank or store is None or out is None or not context.plan.sizes:
        return None
    key, wish = resize_key(context.plan.run_prefix), out.parent / RESIZE_FILE
    brought: bytes | None = None

    def look() -> bytes | None:
        nonlocal brought
        blob = store.get(key)
        if blob is not None and blob.data != brought:
            brought = blob.data
            _bring(brought)
        return brought

    def _bring(data: bytes) -> None:
        try:
            request = ResizeRequest.from_json(data)
        except IntegrityError as error:
            context.events.emit("resize_refused", reason=str(error))
            return
        replace_file(wish, request.to_json(), durable=False)

    return RequestWatcher(look)
