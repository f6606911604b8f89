"""When a training saves, and what it saves besides tensors; the saving itself is done by `checkpoint`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from gangline.checkpoint.loader import Loaded, load
from gangline.checkpoint.pending_save import SaveReport
from gangline.checkpoint.saver import Saver
from gangline.checkpoint.state import tensor_digests
from gangline.train.loop.random_state import generator_state, restore_generators, seed_everything
from gangline.train.loop.sample_order import SampleSpan, Shares
from gangline.train.runtime.context import RankContext, RankState

SAVE_SECONDS = 600.0
"""Silence announced for a save or load that blocks; the watchdog waits no longer."""


@dataclass(slots=True)
class TrainingProgress:
    """Where a training stands: all that a resumed one needs beside tensors and generators."""

    seed: int
    step: int = 0
    cursor: int = 0
    """Next position in the order of samples."""
    reference: float = 0.0
    """Weight of the last step; 0: there was none."""
    skipped: list[SampleSpan] = field(default_factory=list)
    rollbacks: int = 0
    shares: Shares = ()
    """Samples by replica; empty: even."""
    scaler: dict[str, Any] = field(default_factory=dict)

    def numbers(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in TrainingProgress.__dataclass_fields__}
        return plain | {"skipped": [list(span) for span in self.skipped], "shares": list(self.shares)}

    @staticmethod
    def of(numbers: dict[str, Any]) -> "TrainingProgress":
        skipped = [(start, stop) for start, stop in numbers["skipped"]]
        return TrainingProgress(**numbers | {"skipped": skipped, "shares": tuple(numbers.get("shares", ()))})


class ExtraTensors(Protocol):
    """Tensors that a strategy keeps beside model and optimizer and wants back after a resume; names are its own."""

    def tensors(self) -> Mapping[str, Tensor]:
        """Alike on all ranks, or DTensor; a resume fills them in place where the checkpoint has them."""
        ...

    def own_tensors(self) -> Mapping[str, Tensor]:
        """Of this rank alone."""
        ...

    def take_back(self, own: Mapping[str, Tensor]) -> None:
        """After a resume: this rank's own as saved, on the host; empty where another number of ranks saved them."""
        ...


@dataclass(frozen=True, slots=True)
class RankTensors:
    """What one part of the training remembers on this rank, under a head of its own."""

    head: str
    memory: RankState

    def tensors(self) -> Mapping[str, Tensor]:
        return {}

    def own_tensors(self) -> Mapping[str, Tensor]:
        return {f"{self.head}/{name}": tensor for name, tensor in self.memory.state().items()}

    def take_back(self, own: Mapping[str, Tensor]) -> None:
        head = f"{self.head}/"
        self.memory.load({name.removeprefix(head): each for name, each in own.items() if name.startswith(head)})


class CheckpointSaves:
    """Checkpoints of one training; every call but `poll` and `carry` is collective."""

    def __init__(self, context: RankContext, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._context, self._model, self._optimizer = context, model, optimizer
        self._saver: Saver | None = None
        self.last_key: str | None = None
        """Folder of the newest complete checkpoint."""
        self._carried: list[ExtraTensors] = [RankTensors(head, memory) for head, memory in context.memories.items()]

    def carry(self, carried: ExtraTensors) -> None:
        """Save these tensors too, and give them back; before the first save or resume, on all ranks."""
        self._carried.append(carried)

    def resume(self, *, at: str | None = None) -> TrainingProgress | None:
        """Open the newest good checkpoint, or the one at `at`; None: there is none."""
        context = self._context
        if context.store is None:
            return None
        with context.during("resume", at_most_seconds=SAVE_SECONDS):
            prefix = at.rpartition("/")[0] if at else context.checkpoints
            loaded = load(
                context.store, prefix, self._model, self._optimizer,
                key=context.key, group=context.groups.checkpoint, at=at, on_refused=self._refused,
                extra=_merged(each.tensors() for each in self._carried), copies=context.copies,
            )  # fmt: skip
        if loaded is None:
            return None
        progress = self._restore(loaded)
        if not loaded.is_stored:
            # what only copies have is soon in the store too; of the last step, before anybody calls it done
            self.save(progress, wait=progress.step >= context.plan.last_step)
        return progress

    def save(self, progress: TrainingProgress, *, wait: bool) -> None:
        """Save; without `wait` it ends beside the training, and is left out while another is under way."""
        saver = self._open()
        if saver is None:
            return
        if wait:
            with self._context.during("checkpoint", at_most_seconds=SAVE_SECONDS):
                report = self._save(saver, progress, wait=True)
        else:
            with self._context.clock.during("checkpoint"):
                self._save(saver, progress, wait=False)
            report = None
        self.poll()
        if report is not None:
            self._tell(report)

    def _save(self, saver: Saver, progress: TrainingProgress, *, wait: bool) -> SaveReport | None:
        return saver.save(
            self._model, self._optimizer, progress.numbers(), step=progress.step, wait=wait,
            rank_numbers={"generators": generator_state(), "tp": self._context.plan.mesh.tp},
            extra=_merged(each.tensors() for each in self._carried),
            rank_extra=_merged(each.own_tensors() for each in self._carried),
        )  # fmt: skip

    def digests(self) -> dict[str, str]:
        """SHA-256 of every full tensor of model and optimizer, as this plan holds them."""
        return tensor_digests(self._model, self._optimizer, group=self._context.groups.checkpoint)

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

    def abandon(self) -> None:
        """The gang has come apart: what was being saved is torn, and its thread is over when this returns; local."""
        self._context.save_in_flight = None
        if self._saver is not None:
            self._saver.close()

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
                copies=context.copies,
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
            blocking_seconds=report.blocking_seconds, copied_seconds=report.copied_seconds,
        )  # fmt: skip
        if report.note:
            events.emit("checkpoint_note", step=report.step, reason=report.note)

    def _refused(self, file: str, reason: str) -> None:
        self._context.events.emit("checkpoint_refused", file=file, reason=reason)

    def _restore(self, loaded: Loaded) -> TrainingProgress:
        progress = TrainingProgress.of(loaded.numbers)
        for carried in self._carried:
            carried.take_back(loaded.rank_extra)
        self.last_key = loaded.prefix
        source = "copy" if loaded.from_copy else "store"
        self._context.events.emit(
            "resumed",
            step=loaded.step,
            cursor=progress.cursor,
            checkpoint=loaded.prefix,
            source=source,
            peer_bytes=loaded.peer_bytes,
        )
        for note in loaded.notes:
            self._context.events.emit("checkpoint_note", step=loaded.step, reason=note)
        self._restore_generators(loaded, seed=progress.seed)
        return progress

    def _restore_generators(self, loaded: Loaded, *, seed: int) -> None:
        """This rank's own, or new ones: other ranks, or the same in other places, saved other ones."""
        saved, peers = loaded.rank_numbers, self._context.plan.mesh.tp
        if saved is not None and saved.get("tp", peers) == peers:
            restore_generators(saved["generators"])
            return
        seed_everything(seed, rank=self._context.draws_as, step=loaded.step)
        what = "another number of ranks" if saved is None else "another layout of as many ranks"
        self._context.events.emit("reseeded", step=loaded.step, reason=f"{what} saved its generators")


def _merged(tables: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {name: tensor for table in tables for name, tensor in table.items()}
