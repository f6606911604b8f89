"""One save from staged tensors into copies and store, on the thread of a saver; collective over its ranks."""

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
    """What became of one save, as every rank knows it."""

    step: int
    key: str
    """Folder of the checkpoint in the store."""
    blocking_seconds: float = 0.0
    """Training stood still; 0.0 while that lasts."""
    seconds: float = 0.0
    """From the call until the manifest was read back; 0.0 while it is still in flight."""
    copied_seconds: float | None = None
    """From the call until copies were kept; None: there are none."""
    size_bytes: int = 0
    """Of the whole checkpoint; 0 while in flight."""
    done: bool = False
    error: str | None = None
    """Why it failed; the next save tries again."""
    note: str | None = None
    """What went wrong beside a save that is good; rank 0's alone."""


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
    """Of the copies, once they are kept."""
    failure: BaseException | None = None
    blocking_seconds: float = 0.0
    """From the call until the writing thread was under way."""


class SaveWriter:
    """Writes flights, one at a time."""

    def __init__(self, to: Destination, peers: Peers, *, keep: int, copies: NodeCopies | None) -> None:
        self._to, self._peers, self._keep = to, peers, keep
        all_have = not peers.most(int(copies is None))[0]
        self._maker = CopyMaker(copies, to, peers) if copies is not None and all_have else None
        self._has_collected = False

    def write(self, flight: PendingSave) -> SaveReport:
        """The report of a save that is durable; one that failed may be written again, and goes on from its copies."""
        notes = [self._copy(flight, self._maker)] if self._maker is not None and flight.copied is None else []
        if self._maker is not None and flight.copied is not None:
            self._maker.publish(flight.report.key, flight.copied)
            size = flight.copied.size_bytes
        else:
            size = self._write_through(flight)
        notes.append(self._tidy())
        return replace(
            flight.report, done=True, size_bytes=size, seconds=time.monotonic() - flight.started,
            note="; ".join(filter(None, notes)) or None,
        )  # fmt: skip

    def _copy(self, flight: PendingSave, maker: CopyMaker) -> str | None:
        """Keep copies; where that fails, why: the store is written all the same."""
        if not maker.has_room(flight.tensors):
            return "no copy is kept: its folder in memory has no room on some node"
        planner = StagedSavePlanner(flight.rank_numbers)
        writer = CopyWriter(
            self._to, planner, step=flight.report.step, rank=self._peers.rank,
            optimizer=self._peers.union(flight.optimizer), numbers=flight.numbers, files=maker.files,
        )  # fmt: skip
        try:
            flight.copied = maker.copy(flight.tensors, writer, planner)
        except StorageError as error:
            return f"no copy is kept: {error}"
        flight.report = replace(flight.report, copied_seconds=time.monotonic() - flight.started)
        return None

    def _write_through(self, flight: PendingSave) -> int:
        """Straight into the store; bytes of the checkpoint."""
        planner = StagedSavePlanner(flight.rank_numbers)
        writer = CheckpointWriter(
            self._to, planner, step=flight.report.step, rank=self._peers.rank,
            optimizer=self._peers.union(flight.optimizer), numbers=flight.numbers,
        )  # fmt: skip
        dcp.save(flight.tensors, writer=writer, planner=planner, peers=self._peers)
        return self._peers.most(writer.size_bytes)[0]

    def _tidy(self) -> str | None:
        """Retention, and once what older generations left unfinished; by rank 0.

        A store that refuses to delete costs room, not the checkpoint.
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
            return f"older checkpoints are kept for now: {error}"
        return None
