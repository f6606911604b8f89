"""Saves and resumes of one training: what is saved in addition to tensors, and the events about it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from gangline.checkpoint.loader import Loaded, load
from gangline.checkpoint.pending_save import SaveReport
from gangline.checkpoint.saver import Saver
from gangline.checkpoint.state import tensor_digests
from gangline.spec.plan import FusedParameter
from gangline.storage.objects.protocol import ObjectStore
from gangline.train.loop.random_state import generator_state, restore_generators, seed_everything
from gangline.train.loop.sample_order import SampleSpan, Shares
from gangline.train.runtime.context import RankContext, RankState

SAVE_SECONDS = 600.0
"""Time announced to the watchdog for a save or load that blocks."""


@dataclass(slots=True)
class TrainingProgress:
    """Position of a training: what a resume needs in addition to tensors and generators."""

    seed: int
    step: int = 0
    cursor: int = 0
    """Next position in the order of samples."""
    reference: float = 0.0
    """Weight of the last step; 0 before the first."""
    skipped: list[SampleSpan] = field(default_factory=list)
    rollbacks: int = 0
    shares: Shares = ()
    """Samples of a step by replica; empty if even."""
    scaler: dict[str, Any] = field(default_factory=dict)

    def numbers(self) -> dict[str, Any]:
        """Its fields as JSON values, for a checkpoint."""
        plain = {name: getattr(self, name) for name in TrainingProgress.__dataclass_fields__}
        return plain | {"skipped": [list(span) for span in self.skipped], "shares": list(self.shares)}

    @staticmethod
    def of(numbers: dict[str, Any]) -> "TrainingProgress":
        """Inverse of `numbers`; a checkpoint may be older than shares."""
        skipped = [(start, stop) for start, stop in numbers["skipped"]]
        return TrainingProgress(**numbers | {"skipped": skipped, "shares": tuple(numbers.get("shares", ()))})


class ExtraTensors(Protocol):
    """Tensors that a strategy saves in addition to model and optimizer; it chooses their names."""

    def tensors(self) -> Mapping[str, Tensor]:
        """Equal on all ranks, or DTensor; a resume fills them in place if the checkpoint has them."""
        return {}

    def own_tensors(self) -> Mapping[str, Tensor]:
        """Tensors of this rank alone."""
        return {}

    def restore(self, own: Mapping[str, Tensor]) -> None:
        """Take back this rank's own tensors, on the host; called at a resume. Empty if another number of ranks saved
        them."""
        ...


@dataclass(frozen=True, slots=True)
class RankTensors(ExtraTensors):
    """State of one component on this rank, saved under a prefix of its own."""

    head: str
    memory: RankState

    def own_tensors(self) -> Mapping[str, Tensor]:
        return {f"{self.head}/{name}": tensor for name, tensor in self.memory.state().items()}

    def restore(self, own: Mapping[str, Tensor]) -> None:
        head = f"{self.head}/"
        self.memory.load({name.removeprefix(head): tensor for name, tensor in own.items() if name.startswith(head)})


class CheckpointSaves:
    """Checkpoints of one training; every call but `poll` and `add_extra` is collective."""

    def __init__(self, context: RankContext, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._context, self._model, self._optimizer = context, model, optimizer
        self._saver: Saver | None = None
        self.last_key: str | None = None
        """Folder of the newest complete checkpoint."""
        self.on_save: Callable[[int], object] = lambda _step: None
        """Called with the step before its weights are read."""
        self._extras: list[ExtraTensors] = [RankTensors(head, memory) for head, memory in context.memories.items()]

    def add_extra(self, extra: ExtraTensors) -> None:
        """Save and restore these tensors, too; called on all ranks, before the first save or resume."""
        self._extras.append(extra)

    def resume(self, *, at: str | None = None) -> TrainingProgress | None:
        """Load the newest checkpoint that verifies, or the one at `at`, else what the run starts from; None: none."""
        if self._context.store is None:
            return None
        plan, is_start = self._context.plan, False
        loaded = self._load(self._context.store, at)
        if loaded is None and at is None and plan.start.checkpoint is not None:
            loaded = self._load(self._context.store, plan.start.checkpoint, plan.start.fused, keeps=True)
            is_start = True
        if loaded is None:
            return None
        progress = self._restore(loaded, is_start=is_start)
        if not loaded.is_stored:
            # a step that only copies have is saved to the store; the last step before the training is reported done
            self.save(progress, wait=progress.step >= plan.last_step)
        return progress

    def _load(
        self, store: ObjectStore, at: str | None, fused: Sequence[FusedParameter] = (), *, keeps: bool = False
    ) -> Loaded | None:
        context = self._context
        with context.during("resume", at_most_seconds=SAVE_SECONDS):
            return load(
                store, at.rpartition("/")[0] if at else context.checkpoints, self._model, self._optimizer,
                key=context.key, group=context.groups.checkpoint, at=at, on_refused=self._emit_refused,
                extra=_merged(extra.tensors() for extra in self._extras), copies=context.copies, fused=fused,
                keeps_options=keeps,
            )  # fmt: skip

    def save(self, progress: TrainingProgress, *, wait: bool) -> None:
        """Save; without `wait` in the background, skipped while another save is in flight."""
        saver = self._open()
        if saver is None:
            return
        self.on_save(progress.step)
        if wait:
            with self._context.during("checkpoint", at_most_seconds=SAVE_SECONDS):
                report = self._save(saver, progress, wait=True)
        else:
            with self._context.clock.during("checkpoint"):
                self._save(saver, progress, wait=False)
            report = None
        self.poll()
        if report is not None:
            self._emit(report)

    def _save(self, saver: Saver, progress: TrainingProgress, *, wait: bool) -> SaveReport | None:
        return saver.save(
            self._model, self._optimizer, progress.numbers(), step=progress.step, wait=wait,
            rank_numbers={"generators": generator_state(), "tp": self._context.plan.mesh.tp},
            extra=_merged(extra.tensors() for extra in self._extras),
            rank_extra=_merged(extra.own_tensors() for extra in self._extras),
        )  # fmt: skip

    def digests(self) -> dict[str, str]:
        """SHA-256 of every full tensor of model and optimizer under this plan."""
        return tensor_digests(self._model, self._optimizer, group=self._context.groups.checkpoint)

    def poll(self) -> None:
        """Emit events of saves that finished; local."""
        if self._saver is not None:
            for report in self._saver.poll():
                self._emit(report)

    def wait(self) -> None:
        """Wait for the save in flight."""
        if self._saver is not None:
            with self._context.during("checkpoint", at_most_seconds=SAVE_SECONDS):
                for report in self._saver.wait():
                    self._emit(report)

    def abandon(self) -> None:
        """The gang lost a rank: drop the save in flight and wait for its thread; local."""
        self._context.save_in_flight = None
        if self._saver is not None:
            self._saver.close()

    def close(self) -> None:
        self.wait()
        if self._saver is not None:
            self._saver.close()

    def _open(self) -> Saver | None:
        context, policy = self._context, self._context.plan.checkpoint
        if self._saver is None and context.store is not None:
            self._saver = Saver(
                store=context.store, prefix=context.checkpoints, run=context.plan.run,
                plan_digest=context.plan.digest, generation=context.generation, key=context.key,
                group=context.groups.checkpoint, keep=policy.keep, max_unsaved_seconds=policy.max_unsaved_seconds,
                copies=context.copies,
            )  # fmt: skip
            context.save_in_flight = self.wait
        return self._saver

    def _emit(self, report: SaveReport) -> None:
        events = self._context.events
        if report.error is not None:
            events.emit("save_failed", step=report.step, reason=report.error)
            return
        self.last_key = report.key
        events.emit(
            "saved", step=report.step, key=report.key, size_bytes=report.size_bytes, seconds=report.seconds,
            blocking_seconds=report.blocking_seconds, copied_seconds=report.copied_seconds,
        )  # fmt: skip
        if report.note:
            events.emit("checkpoint_note", step=report.step, reason=report.note)

    def _emit_refused(self, file: str, reason: str) -> None:
        self._context.events.emit("checkpoint_refused", file=file, reason=reason)

    def _restore(self, loaded: Loaded, *, is_start: bool) -> TrainingProgress:
        progress = TrainingProgress.of(loaded.numbers)
        for extra in self._extras:
            extra.restore(loaded.rank_extra)
        self.last_key = loaded.prefix
        source = "start" if is_start else "copy" if loaded.from_copy else "store"
        self._context.events.emit(
            "resumed",
            step=loaded.step,
            cursor=progress.cursor,
            checkpoint=loaded.prefix,
            source=source,
            peer_bytes=loaded.peer_bytes,
            **({"converted": list(loaded.converted)} if is_start else {}),
        )
        for note in loaded.notes:
            self._context.events.emit("checkpoint_note", step=loaded.step, reason=note)
        self._restore_generators(loaded, seed=progress.seed)
        return progress

    def _restore_generators(self, loaded: Loaded, *, seed: int) -> None:
        """Restore this rank's generators, or seed new ones if another layout of ranks saved them."""
        saved, peers = loaded.rank_numbers, self._context.plan.mesh.tp
        if saved is not None and saved.get("tp", peers) == peers:
            restore_generators(saved["generators"])
            return
        seed_everything(seed, rank=self._context.draws_as, step=loaded.step)
        what = "another number of ranks" if saved is None else "another layout of as many ranks"
        self._context.events.emit("reseeded", step=loaded.step, reason=f"the generators were saved by {what}")


def _merged(tables: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {name: tensor for table in tables for name, tensor in table.items()}
