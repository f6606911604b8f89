"""Saves beside training: staged on the training thread, written by another, one in flight, never lost in silence.

All collectives of the writing thread run on the `checkpoint` group; on the default group they would interleave with
training and hang. What the ranks decide together (skip or wait, go on or give up) they settle on a second group of the
same ranks, from the training thread.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from threading import Event, Thread
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gangline.checkpoint.format.index import EXTRA, own_head
from gangline.checkpoint.format.manifest import checkpoint_folder
from gangline.checkpoint.host_tensors import Staging
from gangline.checkpoint.node_copies import NodeCopies
from gangline.checkpoint.peers import Peers
from gangline.checkpoint.pending_save import PendingSave, SaveReport, SaveWriter
from gangline.checkpoint.state import live_state
from gangline.checkpoint.writer import Destination
from gangline.errors import ConfigError, GanglineError, LostPeerError, StorageError
from gangline.spec.codec import canonical
from gangline.storage.objects.protocol import ObjectStore

_LONGEST_PAUSE_SECONDS = 10.0


class Saver:
    """Checkpoints of one generation of a gang; made, called and closed by all ranks together.

    Args:
        prefix: `<run_prefix>/checkpoints`.
        generation: Start of the gang inside its run; file names carry it, and a newer one fences this one off.
        key: HMAC key that signs the manifests.
        group: gloo group used by checkpoints alone; None: one process.
        keep: Newest checkpoints to keep.
        max_unsaved_seconds: So long may saves go on failing before `save` gives up on the store.
        patience_seconds: So long does a save that waits try again.
        copies: Of this node, filled before the store; without them on any rank there are none.
    """

    def __init__(
        self, *, store: ObjectStore, prefix: str, run: str, plan_digest: str, generation: int, key: bytes,
        group: dist.ProcessGroup | None, keep: int = 3, max_unsaved_seconds: float = 3600.0,
        patience_seconds: float = 60.0, copies: NodeCopies | None = None,
    ) -> None:  # fmt: skip
        self._to = Destination(store, prefix, run, plan_digest, generation, key)
        self._peers = Peers(group)
        self._council = self._peers.twin()
        self._writing = SaveWriter(self._to, self._peers, keep=keep, copies=copies)
        self._max_unsaved, self._patience = max_unsaved_seconds, patience_seconds
        self._staging = Staging()
        self._flight: PendingSave | None = None
        self._thread: Thread | None = None
        self._finished: list[SaveReport] = []
        self._last_good: SaveReport | None = None
        self._good_at = time.monotonic()
        self._failing = False
        self.skipped = 0
        """Periodic saves that met one in flight."""

    def save(
        self, model: nn.Module, optimizer: torch.optim.Optimizer | None, numbers: dict[str, Any], *, step: int,
        wait: bool, rank_numbers: dict[str, Any] | None = None, extra: Mapping[str, Tensor] | None = None,
        rank_extra: Mapping[str, Tensor] | None = None,
    ) -> SaveReport | None:  # fmt: skip
        """Save model, optimizer and numbers; collective.

        Args:
            model: Bare module, its parameters plain or DTensor; all of the model, or this rank's part of it.
            optimizer: None: the model alone.
            numbers: JSON data, equal on all ranks: rank 0's is kept.
            wait: Return when it is durable, trying again for a while; else return when it is staged.
            rank_numbers: JSON data of this rank.
            extra: More tensors, equal on all ranks or DTensor.
            rank_extra: More tensors of this rank.

        Returns:
            The report (`done` with `wait`), or None: skipped, because one is in flight.

        Raises:
            StorageError: Nothing could be saved for `max_unsaved_seconds`, or, with `wait`, for `patience_seconds`.
            StaleGeneration: A newer generation of the gang writes now.
        """
        started = time.monotonic()
        _check_json(numbers, rank_numbers)
        in_flight = self._settle(wait=wait)
        if in_flight:
            self.skipped += 1
            return None
        if self._last_good is not None and self._last_good.step == step:
            return self._hand_over(self._last_good)
        state = live_state(model, optimizer)
        own = own_head(self._peers.rank, self._peers.size)
        staged = self._staging.copy(state.tensors | _under(EXTRA, extra) | _under(own, rank_extra))
        report = SaveReport(step=step, key=checkpoint_folder(self._to.prefix, step))
        flight = PendingSave(report, started, staged, state.numbers, numbers, rank_numbers)
        self._launch(flight)
        return self._see_through(flight) if wait else replace(report, blocking_seconds=flight.blocking_seconds)

    def poll(self) -> list[SaveReport]:
        """Saves that finished since last asked, failed ones too; local. Waiting saves report by their return alone.

        Raises:
            GanglineError: A save failed for a reason that no later save can mend.
        """
        if self._thread is not None and not self._thread.is_alive():
            self._land()
        finished, self._finished = self._finished, []
        return finished

    def wait(self) -> list[SaveReport]:
        """`poll` once nothing is in flight."""
        if self._thread is not None:
            self._thread.join()
        return self.poll()

    def close(self) -> None:
        """End of the saver: waits for the save in flight; its report is left to `poll`."""
        if self._thread is not None:
            self._thread.join()

    def _settle(self, *, wait: bool) -> bool:
        """Is a save in flight, for all ranks alike? Raises on all when saving has failed for too long."""
        if wait and self._thread is not None:
            self._thread.join()
        if self._thread is not None and not self._thread.is_alive():
            self._land()
        overdue = self._failing and time.monotonic() - self._good_at > self._max_unsaved
        in_flight, given_up = self._council.most(int(self._thread is not None), int(overdue))
        if given_up:
            raise StorageError(
                f"no checkpoint could be written to {self._to.prefix} for {self._max_unsaved:.0f} s; "
                "training stops, because more work would be lost; it resumes from the last one once the store is back"
            )
        return bool(in_flight)

    def _launch(self, flight: PendingSave) -> None:
        """Begin to write; the thread waits until this one goes on, for `start` returns only when it lets go."""
        self._flight, gate = flight, Event()
        self._thread = Thread(target=self._write, args=(flight, gate), name=f"save-{flight.report.step}", daemon=True)
        self._thread.start()
        flight.blocking_seconds = time.monotonic() - flight.started
        gate.set()

    def _write(self, flight: PendingSave, gate: Event) -> None:
        """Body of the thread: leaves its outcome in the flight, whatever happens."""
        gate.wait()
        try:
            flight.report = self._writing.write(flight)
        except BaseException as error:
            flight.failure = error  # the training thread raises it, or takes it for store trouble

    def _land(self) -> SaveReport:
        """Take in the outcome of the thread that ended."""
        flight, self._flight, self._thread = self._flight, None, None
        assert flight is not None
        flight.report = replace(flight.report, blocking_seconds=flight.blocking_seconds)
        if flight.failure is None:
            self._last_good, self._good_at, self._failing = flight.report, time.monotonic(), False
        else:
            self._failing = True
            flight.report = replace(flight.report, done=True, error=_reason(flight.failure))
        self._finished.append(flight.report)
        return flight.report

    def _hand_over(self, report: SaveReport) -> SaveReport:
        """A report that `save` returns is told once: `poll` no longer gives it."""
        self._finished = [each for each in self._finished if each is not report]
        return report

    def _see_through(self, flight: PendingSave) -> SaveReport:
        """Wait for a save; where the store failed it, write the same staged bytes again for a while."""
        deadline = flight.started + min(self._patience, self._max_unsaved)
        pause = 0.2
        while True:
            assert self._thread is not None
            self._thread.join()
            report = self._hand_over(self._land())
            if report.error is None:
                return replace(report, blocking_seconds=report.seconds)
            if self._council.most(int(time.monotonic() + pause > deadline))[0]:
                raise StorageError(f"checkpoint {report.key} could not be written: {report.error}")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            flight.failure, flight.report = None, replace(report, done=False, error=None)
            self._launch(flight)


def _under(head: str, tensors: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
    return {head + name: tensor for name, tensor in (tensors or {}).items()}


def _reason(failure: BaseException) -> str:
    """One sentence about store trouble; anything else is raised, because no later save can mend it."""
    if isinstance(failure, StorageError):
        return str(failure)
    if isinstance(failure, GanglineError):
        raise failure
    raise LostPeerError(f"the ranks could not finish a checkpoint together: {failure}") from failure


def _check_json(*values: dict[str, Any] | None) -> None:
    try:
        canonical(values)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"numbers of a checkpoint are JSON data with finite floats: {error}") from error
