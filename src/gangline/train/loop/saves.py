"""When to save and what besides tensors; the saving itself is the checkpoint room's."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from gangline.checkpoint.loader import Loaded, load
from gangline.checkpoint.saver import Saver, SaveReport
from gangline.train.context import Context
from gangline.train.loop.order import Span
from gangline.train.loop.random import generator_state, restore_generators

SAVE_SECONDS = 600.0
"""Silence announced for a save or load that blocks; the watchdog waits no longer."""


@dataclass(slots=True)
class Progress:
    """Where a training stands: all that a resumed one needs beside tensors and generators."""

    seed: int
    step: int = 0
    cursor: int = 0
    """Next position in the order of samples."""
    reference: float = 0.0
    """Weight of the last step; 0: there was none."""
    skipped: list[Span] = field(default_factory=list)
    rollbacks: int = 0
    scaler: dict[str, Any] = field(default_factory=dict)

    def numbers(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in Progress.__dataclass_fields__}
        return plain | {"skipped": [list(span) for span in self.skipped]}

    @staticmethod
    def of(numbers: dict[str, Any]) -> "Progress":
        return Progress(**numbers | {"skipped": [(start, stop) for start, stop in numbers["skipped"]]})


class Saves:
    """Checkpoints of one training; every call but `poll` is collective."""

    def __init__(self, context: Context, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._context, self._model, self._optimizer = context, model, optimizer
        self._saver: Saver | None = None
        self.last_key: str | None = None
        """Folder of the newest complete checkpoint."""

    def resume(self, *, at: str | None = None) -> Progress | None:
        """Open the newest good checkpoint, or the one at `at`; None: there is none."""
        context = self._context
        if context.store is None:
            return None
        with context.during("resume", at_most_seconds=SAVE_SECONDS):
            prefix = at.rpartition("/")[0] if at else context.checkpoints
            loaded = load(
                context.store, prefix, self._model, self._optimizer,
                key=context.key, group=context.groups.checkpoint, at=at, on_refused=self._refused,
            )  # fmt: skip
        return None if loaded is None else self._restore(loaded)

    def save(self, progress: Progress, *, wait: bool) -> None:
        """Save; without `wait` it ends beside the training, and is left out while another is under way."""
        saver = self._open()
        if saver is None:
            return
        numbers, own = progress.numbers(), {"generators": generator_state()}
        if wait:
            with self._context.during("checkpoint", at_most_seconds=SAVE_SECONDS):
                report = saver.save(
                    self._model, self._optimizer, numbers, step=progress.step, wait=True, rank_numbers=own
                )
        else:
            with self._context.clock.during("checkpoint"):
                saver.save(self._model, self._optimizer, numbers, step=progress.step, wait=False, rank_numbers=own)
            report = None
        self.poll()
        if report is not None:
            self._tell(report)

    def poll(self) -> None:
        """Report saves that ended meanwhile; local."""
        if self._saver is not None:
            for report in self._saver.poll():
                self._tell(report)

    def settle(self) -> None:
        """Wait for the save under way."""
        if self._saver is not None:
            with self._context.during("checkpoint", at_most_seconds=SAVE_SECONDS):
                for report in self._saver.wait():
                    self._tell(report)

    def close(self) -> None:
        self.settle()
        if self._saver is not None:
            self._saver.close()

    def _open(self) -> Saver | None:
        context, policy = self._context, self._context.plan.checkpoint
        if self._saver is None and context.store is not None:
            self._saver = Saver(
                store=context.store, prefix=context.checkpoints, run=context.plan.run,
                plan_digest=context.plan.digest, generation=context.generation, key=context.key,
                group=context.groups.checkpoint, keep=policy.keep, max_unsaved_seconds=policy.max_unsaved_seconds,
            )  # fmt: skip
            context.save_in_flight = self.settle
        return self._saver

    def _tell(self, report: SaveReport) -> None:
        events = self._context.events
        if report.error is not None:
            events.emit("save_failed", step=report.step, reason=report.error)
            return
        self.last_key = report.key
        events.emit(
            "saved", step=report.step, key=report.key, size_bytes=report.size_bytes, seconds=report.seconds,
            blocking_seconds=report.blocking_seconds,
        )  # fmt: skip
        if report.note:
            events.emit("checkpoint_note", step=report.step, reason=report.note)

    def _refused(self, file: str, reason: str) -> None:
        self._context.events.emit("checkpoint_refused", file=file, reason=reason)

    def _restore(self, loaded: Loaded) -> Progress:
        if loaded.rank_numbers is not None:
            restore_generators(loaded.rank_numbers["generators"])
        self.last_key = loaded.prefix
        self._context.events.emit("resumed", step=loaded.step, checkpoint=loaded.prefix)
        return Progress.of(loaded.numbers)
