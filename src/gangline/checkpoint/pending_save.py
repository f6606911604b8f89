"""One save, from staged tensors into copies and store, on the thread of a saver; collective over its ranks."""

import math
import time
from dataclasses import dataclass, replace

from gangline.checkpoint import dcp
from gangline.checkpoint.copy_save import CopyMaker, CopyWriter
from gangline.checkpoint.dcp import StagedSavePlanner
from gangline.checkpoint.format import retention
from gangline.checkpoint.format.manifest import Manifest
from gangline.checkpoint.host_tensors import StagedTensor
from gangline.checkpoint.node_copies import NodeCopies
from gangline.checkpoint.peers import Peers
from gangline.checkpoint.state import Numbers
from gangline.checkpoint.writer import CheckpointWriter, Destination
from gangline.errors import StorageError


@dataclass(frozen=True, kw_only=True, slots=True)
class SaveReport:
    """State or result of one save, equal on every rank."""

    step: int
    key: str
    """Folder of the checkpoint in the store."""
    blocking_seconds: float = 0.0
    """Time that training was blocked; 0.0 while it is."""
    seconds: float = 0.0
    """Time from the call until the manifest was read back; 0.0 while it is in flight."""
    copied_seconds: float | None = None
    """Time from the call until the copies were complete; None if there are none."""
    size_bytes: int = 0
    """Size of the whole checkpoint; 0 while in flight."""
    error: str | None = None
    """Why it failed; the next save tries again."""
    note: str | None = None
    """A problem that did not fail the save; on rank 0 alone."""


@dataclass(slots=True)
class PendingSave:
    """One save between staging and its end."""

    report: SaveReport
    started: float
    tensors: dict[str, StagedTensor]
    optimizer: Numbers
    numbers: Numbers
    rank_numbers: Numbers | None
    copied: Manifest | None = None
    """Manifest of the copies, once they are complete."""
    failure: BaseException | None = None
    blocking_seconds: float = 0.0
    """Time from the call until the writing thread was started."""


class SaveWriter:
    """Writes saves, one at a time."""

    def __init__(self, to: Destination, peers: Peers, *, keep: int, copies: NodeCopies | None) -> None:
        self._to, self._peers, self._keep = to, peers, keep
        all_have = not peers.maximum(int(copies is None))[0]
        self._maker = CopyMaker(copies, to, peers) if copies is not None and all_have else None
        self._has_collected = False

    def write(self, save: PendingSave) -> SaveReport:
        """Write a save and return its report; a failed save may be written again and continues from its copies."""
        notes = [self._copy(save, self._maker)] if self._maker is not None and save.copied is None else []
        if self._maker is not None and save.copied is not None:
            self._maker.publish(save.report.key, save.copied)
            size = save.copied.size_bytes
        else:
            size = self._write_through(save)
        notes.append(self._apply_retention())
        return replace(
            save.report, size_bytes=size, seconds=time.monotonic() - save.started,
            note="; ".join(filter(None, notes)) or None,
        )  # fmt: skip

    def _copy(self, save: PendingSave, maker: CopyMaker) -> str | None:
        """Make copies; returns why that failed, if it did: the store is written all the same."""
        if not maker.has_room(save.tensors):
            return "no copy in memory: a node has too little memory for it"
        planner = StagedSavePlanner(save.rank_numbers)
        writer = CopyWriter(
            self._to, planner, step=save.report.step, rank=self._peers.rank,
            optimizer=self._peers.union(save.optimizer), numbers=save.numbers, files=maker.files,
        )  # fmt: skip
        try:
            save.copied = maker.copy(save.tensors, writer, planner)
        except StorageError as error:
            return f"no copy in memory: {error}"
        save.report = replace(save.report, copied_seconds=time.monotonic() - save.started)
        return None

    def _write_through(self, save: PendingSave) -> int:
        """Write to the store without copies; returns the bytes of the checkpoint."""
        planner = StagedSavePlanner(save.rank_numbers)
        writer = CheckpointWriter(
            self._to, planner, step=save.report.step, rank=self._peers.rank,
            optimizer=self._peers.union(save.optimizer), numbers=save.numbers,
        )  # fmt: skip
        dcp.save(save.tensors, writer=writer, planner=planner, peers=self._peers)
        return self._peers.maximum(writer.size_bytes)[0]

    def _apply_retention(self) -> str | None:
        """Apply retention and, once, delete unfinished files of older generations; on rank 0.

        A store that refuses to delete costs space, not the checkpoint.
        """
        if self._peers.rank != 0:
            return None
        to = self._to
        try:
            retention.retain(to.store, to.prefix, to.key, keep=self._keep)
            if not self._has_collected:
                retention.collect(to.store, to.prefix, to.key, now=0.0, older_than=math.inf, generation=to.generation)
                self._has_collected = True
        except StorageError as error:
            return f"older checkpoints could not be deleted: {error}"
        return None
