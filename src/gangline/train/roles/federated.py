"""Rounds of a federation in the gang: asks members, merges, updates the model, saves before it asks again.

The checkpoint is an ordinary one of the model and the coordinator's optimizer, at step `round * local_steps`; a gang
that is killed repeats at most the round that it had not saved.
"""

import time
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from gangline.errors import SIGTERM_CODE, NonFiniteError
from gangline.federated.mailbox import MAILBOX, MailboxMembers
from gangline.federated.merge import norm_of
from gangline.federated.protocol import Acceptance, RoundMembers
from gangline.federated.rounds import RoundResult, Rounds
from gangline.spec.gang.status import GangResult, JobResult
from gangline.train import heartbeat
from gangline.train.account.results import losses_of, write_result
from gangline.train.loop.engine import SIGTERM_REASON, TrainingJob
from gangline.train.loop.evaluation import evaluate, wanted_metrics
from gangline.train.loop.trainer import Trainer
from gangline.train.model.exchanged import apply_change, arrays_of
from gangline.train.roles.simulated_members import GangMembers
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.data_splits import fetch_data, open_split
from gangline.train.task import Task, export_names_of

_MOST_MISSING = 10
"""Members that an event names."""
SPARE_SECONDS = 600.0
"""Time beyond that of a round in which its members may be silent."""


def train_rounds(trainer: Trainer, *, judges: bool) -> Mapping[str, float]:
    """Resume, and ask for all rounds that are left; collective.

    Returns:
        With `judges` metrics of the final weights; none if a rank was asked to stop, which saves the last round.

    Raises:
        CapacityError: No quorum answers.
        NonFiniteError: Merged weights are not finite.
    """
    coordinator = _Coordinator(trainer)
    try:
        if trainer.job.number is None:
            trainer.engine.resume()
        while trainer.engine.has_more:
            coordinator.next_round()
            coordinator.stop_if_asked()
        return coordinator.judge() if judges and not trainer.engine.stopped else {}
    finally:
        coordinator.members.close()


class _Coordinator:
    """The rounds of one generation of the gang."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer, self._context = trainer, trainer.context
        plan, self._engine, self._model = trainer.context.plan, trainer.engine, trainer.wrapped.bare
        assert plan.federation is not None, "a federated plan"
        self._table, self._num_members = plan.federation.table, len(plan.federation.roster)
        is_simulated = plan.federation.simulated
        self.members: RoundMembers = GangMembers(trainer) if is_simulated else _carried_members(trainer.context)
        self._rounds = Rounds(
            plan.federation, self.members, generation=trainer.context.generation, on_attempt=self._note_lost
        )

    def next_round(self) -> None:
        """One round, from its first attempt to its save."""
        progress, began = self._engine.progress, time.monotonic()
        number = progress.step // self._table.local_steps + 1
        self._context.step = progress.step + self._table.local_steps
        result = self._ask(number, trains=True)
        assert result.change is not None, "a round that trained and was not lost"
        with self._context.clock.during("optimizer"):
            apply_change(self._model, self._engine.optimizer, result.change)
        if not all(each.isfinite().all() for each in self._model.state_dict().values()):
            raise NonFiniteError(
                f"round {number}: the merged weights are not finite; a smaller federated.server_lr or a "
                "federated.clip_norm works"
            )
        progress.step = self._context.step
        heartbeat.beat(progress.step)
        self._report(result, seconds=time.monotonic() - began)
        if self._trainer.job.number is None:
            self._engine.saves.save(self._engine.current_progress(), wait=True)

    def judge(self) -> Mapping[str, float]:
        """Metrics of the weights as they are: by the members, or here."""
        context, task = self._context, self._trainer.task
        if self._table.evaluate == "coordinator":
            return evaluate(self._trainer, open_split(context, task, "holdout", seed=self._trainer.job.seed))
        metrics = self._ask(self._engine.progress.step // self._table.local_steps + 1, trains=False).metrics
        return wanted_metrics(metrics, context.plan.evaluate_metrics)

    def stop_if_asked(self) -> None:
        """End the rounds if any rank was asked to stop; collective."""
        asked = torch.tensor([float(self._context.stop_asked)])
        if self._context.plan.world_size > 1:
            dist.all_reduce(asked, group=self._context.groups.control)
        if asked.item():
            self._engine.stopped = True
            self._context.events.emit("stopping", step=self._engine.progress.step, reason=SIGTERM_REASON)

    def _ask(self, number: int, *, trains: bool) -> RoundResult:
        heartbeat.expect(self._table.round_seconds + SPARE_SECONDS)
        with self._context.clock.during("forward"):
            return self._rounds.run(number, arrays_of(self._model), trains=trains)

    def _note_lost(self, result: RoundResult) -> None:
        if result.is_lost:
            self._context.events.emit("round_lost", **self._counts(result))

    def _report(self, result: RoundResult, *, seconds: float) -> None:
        """Write the event of a merged round, and its line of the loss curve."""
        context, step = self._context, self._engine.progress.step
        context.book(redone=step <= context.redone_until)
        assert result.change is not None, "a merged round"
        if context.metrics is not None:
            line = {"seed": self._trainer.job.seed, "job": self._trainer.job.number, "step": step, "loss": result.loss}
            line |= {"gradient_norm": norm_of(result.change), "learning_rate": self._table.server_lr}
            context.metrics.add(line, now=True)
        context.events.emit(
            "round", step=step, loss=result.loss, seconds=seconds, rounds=context.plan.rounds, **self._counts(result)
        )
        context.write_ledger()

    def _counts(self, result: RoundResult) -> dict[str, Any]:
        """What is known of one attempt without any member's name or number."""
        return {
            "round": result.number, "attempt": result.attempt, "answered": len(result.answered),
            "members": self._num_members, "refused": result.refused, "bytes_up": result.bytes_up,
            "bytes_down": result.bytes_down, "engine": result.engine,
            "epsilon": result.spent.epsilon if result.spent is not None else None,
            "accountant": result.spent.accountant if result.spent is not None else None,
        }  # fmt: skip


def _carried_members(context: RankContext) -> RoundMembers:
    """Members that the coordinator of the gang asks: it finds the calls in the folder that both share."""
    folder = context.mailbox or context.scratch / MAILBOX
    folder.mkdir(exist_ok=True)
    federation = context.plan.federation
    assert federation is not None, "a federated plan"

    def report(found: Acceptance) -> None:
        context.events.emit(
            "members", accepted=found.accepted, members=len(federation.roster), quorum=federation.table.quorum,
            missing=found.missing[:_MOST_MISSING],
        )  # fmt: skip

    return MailboxMembers(folder, on_wait=lambda: heartbeat.beat(phase="wait"), on_acceptance=report)


def run(context: RankContext, task: Task) -> int:
    """Exit code of this rank; collective."""
    plan = context.plan
    names = export_names_of(task)
    fetch_data(context)
    trainer = Trainer(context, task, TrainingJob(seed=plan.seed, steps=plan.last_step))
    metrics, engine = train_rounds(trainer, judges=True), trainer.engine
    engine.close()
    if engine.stopped:
        return SIGTERM_CODE
    context.events.emit("evaluated", step=engine.progress.step, seed=plan.seed, metrics=dict(metrics))
    losses = losses_of(context.metrics, seed=plan.seed, job=None)
    job = JobResult(seed=plan.seed, step=engine.progress.step, metrics=dict(metrics), losses=losses)
    result = GangResult(
        role="train", final_step=engine.progress.step, checkpoint=engine.saves.last_key, jobs=(job,),
        metric_units=dict(getattr(task, "metric_units", {})), export_names=names,
    )  # fmt: skip
    write_result(context.metrics, result)
    return 0
