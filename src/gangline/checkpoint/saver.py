"""Background saves: staged on the training thread, written by another thread, one at a time.

All collectives of the writing thread use the `checkpoint` group; on the default group they would interleave with those
of training and hang. Decisions of the ranks (skip or wait, continue or stop) use a second group of the same ranks,
from the training thread.
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
        group: gloo group that only checkpoints use; None: one process.
        keep: Newest checkpoints to keep.
        max_unsaved_seconds: After this time of failing saves `save` raises.
        retry_seconds: Time for which a save that waits tries again.
        copies: Of this node, written before the store; used if all ranks have them.
    """

    def __init__(
        self, *, store: ObjectStore, prefix: str, run: str, plan_digest: str, generation: int, key: bytes,
        group: dist.ProcessGroup | None, keep: int = 3, max_unsaved_seconds: float = 3600.0,
        retry_seconds: float = 60.0, copies: NodeCopies | None = None,
    ) -> None:  # fmt: skip
        self._to = Destination(store, prefix, run, plan_digest, generation, key)
        self._peers = Peers(group)
        self._control = self._peers.second_group()
        self._writer = SaveWriter(self._to, self._peers, keep=keep, copies=copies)
        self._max_unsaved, self._retry_seconds = max_unsaved_seconds, retry_seconds
        self._staging = Staging()
        self._pending: PendingSave | None = None
        self._thread: Thread | None = None
        self._finished: list[SaveReport] = []
        self._last_good: SaveReport | None = None
        self._good_at = time.monotonic()
        self._failing = False
        self.skipped = 0
        """Periodic saves that were skipped because one was in flight."""

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
            wait: Return when the save is durable, with retries; else when it is staged.
            rank_numbers: JSON data of this rank.
            extra: More tensors, equal on all ranks or DTensor.
            rank_extra: More tensors of this rank.

        Returns:
            The report (`done` with `wait`), or None: skipped, because one is in flight.

        Raises:
            StorageError: Nothing could be saved for `max_unsaved_seconds`, or, with `wait`, for `retry_seconds`.
            StaleGeneration: A newer generation of the gang writes now.
        """
        started = time.monotonic()
        _check_json(numbers, rank_numbers)
        in_flight = self._is_in_flight(wait=wait)
        if in_flight:
            self.skipped += 1
            return None
        if self._last_good is not None and self._last_good.step == step:
            return self._claim_report(self._last_good)
        state = live_state(model, optimizer)
        own = own_head(self._peers.rank, self._peers.size)
        staged = self._staging.copy(state.tensors | _under(EXTRA, extra) | _under(own, rank_extra))
        report = SaveReport(step=step, key=checkpoint_folder(self._to.prefix, step))
        save = PendingSave(report, started, staged, state.numbers, numbers, rank_numbers)
        self._start(save)
        return self._wait_until_durable(save) if wait else replace(report, blocking_seconds=save.blocking_seconds)

    def poll(self) -> list[SaveReport]:
        """Reports of saves that finished since the last call, failed ones too, without those that waited; local.

        Raises:
            GanglineError: A save failed for a reason that a later save cannot mend.
        """
        if self._thread is not None and not self._thread.is_alive():
            self._collect()
        finished, self._finished = self._finished, []
        return finished

    def wait(self) -> list[SaveReport]:
        """Wait for the save in flight, then return what `poll` does."""
        if self._thread is not None:
            self._thread.join()
        return self.poll()

    def close(self) -> None:
        """Wait for the save in flight; `poll` returns its report."""
        if self._thread is not None:
            self._thread.join()

    def _is_in_flight(self, *, wait: bool) -> bool:
        """Whether a save is in flight, equal on all ranks; raises on all if saves have failed for too long."""
        if wait and self._thread is not None:
            self._thread.join()
        if self._thread is not None and not self._thread.is_alive():
            self._collect()
        overdue = self._failing and time.monotonic() - self._good_at > self._max_unsaved
        in_flight, given_up = self._control.maximum(int(self._thread is not None), int(overdue))
        if given_up:
            raise StorageError(
                f"no checkpoint could be written to {self._to.prefix} for {self._max_unsaved:.0f} s; "
                "training stops, because more work would be lost; it resumes from the last one once the store is back"
            )
        return bool(in_flight)

    def _start(self, save: PendingSave) -> None:
        """Start to write; the gate holds the thread until `start` has returned here."""
        self._pending, gate = save, Event()
        self._thread = Thread(target=self._write, args=(save, gate), name=f"save-{save.report.step}", daemon=True)
        self._thread.start()
        save.blocking_seconds = time.monotonic() - save.started
        gate.set()

    def _write(self, save: PendingSave, gate: Event) -> None:
        """Body of the thread: stores its result in `save`."""
        gate.wait()
        try:
            save.report = self._writer.write(save)
        except BaseException as error:
            save.failure = error  # the training thread raises or reports it

    def _collect(self) -> SaveReport:
        """Take the result of the thread that ended."""
        save, self._pending, self._thread = self._pending, None, None
        assert save is not None
        save.report = replace(save.report, blocking_seconds=save.blocking_seconds)
        if save.failure is None:
            self._last_good, self._good_at, self._failing = save.report, time.monotonic(), False
        else:
            self._failing = True
            save.report = replace(save.report, error=_reason(save.failure))
        self._finished.append(save.report)
        return save.report

    def _claim_report(self, report: SaveReport) -> SaveReport:
        """Remove a report that `save` returns from those that `poll` returns."""
        self._finished = [save_report for save_report in self._finished if save_report is not report]
        return report

    def _wait_until_durable(self, save: PendingSave) -> SaveReport:
        """Wait for a save; if the store failed it, write the same staged bytes again, for a limited time."""
        deadline = save.started + min(self._retry_seconds, self._max_unsaved)
        pause = 0.2
        while True:
            assert self._thread is not None
            self._thread.join()
            report = self._claim_report(self._collect())
            if report.error is None:
                return replace(report, blocking_seconds=report.seconds)
            if self._control.maximum(int(time.monotonic() + pause > deadline))[0]:
                raise StorageError(f"checkpoint {report.key} could not be written: {report.error}")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            save.failure, save.report = None, replace(report, error=None)
            self._start(save)


def _under(head: str, tensors: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
    return {head + name: tensor for name, tensor in (tensors or {}).items()}


def _reason(failure: BaseException) -> str:
    """Reason of a failure of the store; any other failure is raised, because a later save cannot mend it."""
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
