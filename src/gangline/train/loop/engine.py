"""The part of a training that is the same for a task and for a program: what happens after the last backward of a step.

Judge the step, update, tell the others and hear them, save when it is time, write down what was seen. Where samples and
losses come from is left to the caller.
"""

import resource
import time
from dataclasses import dataclass

import torch

from gangline.errors import NonFiniteError
from gangline.train import heartbeat
from gangline.train.context import Context
from gangline.train.loop.control import ControlWord, Word
from gangline.train.loop.finite import FinitePolicy
from gangline.train.loop.order import Span
from gangline.train.loop.saves import Progress, Saves
from gangline.train.loop.schedule import rate_ratio
from gangline.train.loop.step import StepSums, Update
from gangline.train.parallel.data_parallel import DataParallel
from gangline.train.parallel.precision import grad_scaler

SIGTERM_SENTENCE = "SIGTERM: saved and left"
LEDGER_SECONDS = 1.0
"""What a killed rank did in its last moments is booked by its keeper; so long are they at most, or a step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Course:
    """Which training this is among those of a gang, and how far it goes."""

    seed: int
    steps: int
    job: int | None = None
    """Number of the job in an evaluate or prove gang; they do not save. None: the run's own training."""


class Engine:
    """Collective but where it says otherwise: all ranks make the same calls in the same order."""

    def __init__(
        self, context: Context, wrapped: DataParallel, optimizer: torch.optim.Optimizer, course: Course
    ) -> None:
        self.context, self.wrapped, self.course = context, wrapped, course
        plan = context.plan
        self.progress = Progress(seed=course.seed)
        self.saves = Saves(context, wrapped.bare, optimizer)
        self.scaler = grad_scaler(plan.precision, context.device)
        self.update = Update(
            wrapped, optimizer, scaler=self.scaler, clip_norm=plan.clip_norm, ranks=context.data_ranks,
            phase=context.phase, clock=context.clock, waits=context.waits, reference=float(plan.global_batch),
        )  # fmt: skip
        self.stopped = False
        """A rank was asked to stop: all saved and must leave."""
        self._finite = FinitePolicy(mode=plan.recovery.non_finite, max_in_a_row=plan.recovery.max_events)
        self._control = ControlWord(context.groups.control)
        self._step_began = time.monotonic()

    @property
    def has_more(self) -> bool:
        return self.progress.step < self.course.steps and not self.stopped

    def resume(self, *, at: str | None = None) -> bool:
        """Go on from the newest good checkpoint, or the one at `at`; False: there is none."""
        found = self.saves.resume(at=at)
        if found is not None:
            self._take(found)
        heartbeat.beat(self.progress.step)
        self.context.book()
        return found is not None

    def begin_step(self) -> None:
        """Before its data are fetched."""
        self._step_began = time.monotonic()
        self.context.phase("data")

    def finish_step(self, span: Span) -> None:
        """After the last backward of the step over the positions of `span`."""
        sums = self.update.sum_up()
        step = self.progress.step + 1
        overflow = self.scaler.is_enabled()  # the scaler judges the gradients of fp16 itself, alike on all ranks
        try:
            answer = self._finite.judge(step=step, loss=sums.loss, norm=0.0 if overflow else sums.norm, span=span)
        except NonFiniteError as error:
            self.context.events.emit("non_finite", step=step, answer="stop", reason=str(error))
            raise
        if answer == "apply":
            self.update.apply(rate_ratio=rate_ratio(self.context.plan.schedule, step, steps=self.context.plan.steps))
        else:
            self.update.drop()
            self.context.events.emit("non_finite", step=step, answer=answer, samples=list(span))
        if answer == "rollback":
            self._roll_back()
        else:
            self._step_done(span, sums)

    def close(self) -> None:
        self._control.read()
        self.saves.close()
        self.context.book()

    def _step_done(self, span: Span, sums: StepSums) -> None:
        progress, context = self.progress, self.context
        progress.step, progress.cursor, progress.reference = progress.step + 1, span[1], sums.weight
        context.clock.switch("other")
        heartbeat.beat(progress.step)
        heard = self._control.exchange(Word(stop=context.stop_asked))
        save = self._is_save_due(heard)
        self._draw(sums, now=save)
        if save:
            self._save(wait=heard.stop or progress.step == self.course.steps)
        else:
            self.saves.poll()
        self._report(sums)
        if heard.stop:
            self.stopped = True
            context.events.emit("stopping", step=progress.step, reason=SIGTERM_SENTENCE)

    def _is_save_due(self, heard: Word) -> bool:
        step = self.progress.step
        due = step % self.context.plan.checkpoint.every == 0 or step == self.course.steps
        return self.course.job is None and (due or heard.save or heard.stop)

    def _save(self, *, wait: bool) -> None:
        self.progress.scaler = self.scaler.state_dict()
        self.progress.skipped, self.progress.rollbacks = self._finite.skipped, self._finite.rollbacks
        self.saves.save(self.progress, wait=wait or not self.context.plan.checkpoint.asynchronous)

    def _draw(self, sums: StepSums, *, now: bool) -> None:
        """A line of the curve; those up to a checkpoint are written before it, for no later generation redoes them."""
        step, seconds = self.progress.step, time.monotonic() - self._step_began
        if self.context.metrics is not None:
            line = {
                "seed": self.course.seed, "job": self.course.job, "step": step, "loss": sums.loss,
                "learning_rate": self.update.learning_rate, "gradient_norm": sums.norm,
                "tokens_per_second": self._tokens(sums) / seconds, "step_seconds": seconds,
            }  # fmt: skip
            self.context.metrics.add(line, now=now)

    def _report(self, sums: StepSums) -> None:
        step, plan = self.progress.step, self.context.plan
        phases = self.context.book(redone=self.course.job is None and step <= self.context.redone_until)
        self.context.events.emit(
            "step", step=step, loss=sums.loss, learning_rate=self.update.learning_rate, gradient_norm=sums.norm,
            samples=plan.global_batch, tokens=self._tokens(sums), seconds=sum(phases.values()), phases=phases,
            peak_bytes=_peak_bytes(self.context.device),
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
        self._take(found)
        self._finite.skipped, self._finite.rollbacks = skipped, rollbacks
        self.progress.skipped = skipped

    def _take(self, found: Progress) -> None:
        self.progress = found
        self._finite.skipped, self._finite.rollbacks = list(found.skipped), found.rollbacks
        if found.reference:
            self.update.reference = found.reference
        if found.scaler:
            self.scaler.load_state_dict(found.scaler)


def _peak_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
