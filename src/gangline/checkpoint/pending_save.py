"""One save, from staged tensors into copies and store, on the thread of a saver; collective over its ranks.

Copies go into the memory of this node and of other nodes, and from there into the store.
"""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gangline.checkpoint import dcp
from gangline.checkpoint.copy_transfer import FileTransfer, transfer_files
from gangline.checkpoint.dcp import StagedSavePlanner
from gangline.checkpoint.format import retention
from gangline.checkpoint.format.blocks import BlockCache, VerifiedFile, send_blocks
from gangline.checkpoint.format.manifest import (
    MANIFEST,
    FileEntry,
    Manifest,
    RefusedCheckpoint,
    sign_manifest,
    verify_manifest,
)
from gangline.checkpoint.host_tensors import StagedTensor
from gangline.checkpoint.node_copies import NodeCopies
from gangline.checkpoint.peers import Peers
from gangline.checkpoint.state import Numbers
from gangline.checkpoint.writer import CheckpointWriter, Destination
from gangline.errors import StorageError
from gangline.storage.objects.protocol import ObjectStore

_SPARE_BYTES = 4 * 2**20
"""Room for index, state, manifest and headers."""


class CopyWriter(CheckpointWriter):
    """Writes this rank's files to its node's copies; the coordinator keeps the manifest in memory."""

    manifest: Manifest | None = None

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """The store is not used yet."""

    def complete(self, manifest: Manifest) -> None:
        self.manifest = manifest


class CopyMaker:
    """Makes and publishes the copies of one saver; every call is collective over `peers`."""

    def __init__(self, copies: NodeCopies, to: Destination, peers: Peers) -> None:
        self._copies, self._to, self._peers = copies, to, peers
        self._nodes: list[int] = peers.gather(copies.node)

    @property
    def files(self) -> ObjectStore:
        """The store of this rank's copies."""
        return self._copies.store

    def has_room(self, tensors: Mapping[str, StagedTensor]) -> bool:
        """Whether every node has memory for one more set of copies."""
        own = _SPARE_BYTES + sum(staged.local.nbytes for staged in tensors.values())
        targets = _next_nodes(self._nodes, self._copies.node, self._copies.peers)
        needed = self._peers.maximum(own)[0] * self._nodes.count(self._copies.node) * (1 + len(targets))
        return not self._peers.maximum(int(self._copies.free_bytes() < needed))[0]

    def copy(self, tensors: dict[str, StagedTensor], writer: CopyWriter, planner: StagedSavePlanner) -> Manifest:
        """Copy `tensors` to this node and its peers; returns the manifest that the store will have."""
        to, copies, peers = self._to, self._copies, self._peers
        dcp.save(tensors, writer=writer, planner=planner, peers=peers)
        texts = peers.broadcast(peers.run_on_all(partial(self._metadata_texts, writer)))
        manifest = peers.run_on_all(lambda: verify_manifest(texts[MANIFEST].encode(), to.key))
        transfer_files(self._transfers(writer.folder, manifest), copies, peers)
        peers.run_on_all(partial(self._write_manifest, writer.folder, manifest, texts))
        return manifest

    def publish(self, folder: str, manifest: Manifest) -> None:
        """Upload the copies to the store; the manifest last."""
        self._peers.run_on_all(self._claim)
        self._peers.run_on_all(lambda: self._upload(folder, manifest, _of_rank(manifest, self._peers.rank)))
        self._peers.run_on_all(lambda: self._seal(folder, manifest))

    def _metadata_texts(self, writer: CopyWriter) -> dict[str, str]:
        """Index, state and manifest as text, on the coordinator."""
        manifest = writer.manifest
        if manifest is None:
            return {}
        signed = sign_manifest(manifest, self._to.key)
        texts = {MANIFEST: signed.decode()}
        for name in (manifest.index_name, manifest.state_name):
            texts[name] = self._copies.path(f"{writer.folder}/{name}").read_text()
        return texts

    def _transfers(self, folder: str, manifest: Manifest) -> list[FileTransfer]:
        """Each rank sends its files to the rank with its position on each peer node."""
        transfers = []
        for rank, node in enumerate(self._nodes):
            for target_node in _next_nodes(self._nodes, node, self._copies.peers):
                target = _counterpart(self._nodes, rank, target_node)
                transfers += [
                    FileTransfer(f"{folder}/{name}", manifest.files[name].size_bytes, rank, target)
                    for name in _of_rank(manifest, rank)
                ]
        return sorted(transfers)

    def _write_manifest(self, folder: str, manifest: Manifest, texts: dict[str, str]) -> None:
        """Write index, state and, last, the manifest, then delete older copies; by one rank of each node."""
        if self._nodes.index(self._copies.node) != self._peers.rank:
            return
        for name in (manifest.index_name, manifest.state_name, MANIFEST):
            self._copies.write(f"{folder}/{name}", [texts[name].encode()])
        self._copies.keep_only(self._to.prefix, {folder: {*manifest.files, MANIFEST}})

    def _claim(self) -> None:
        if self._peers.rank == 0:
            self._to.claim()

    def _upload(self, folder: str, manifest: Manifest, names: list[str]) -> None:
        for name in names:
            send_blocks(self._to.store, f"{folder}/{name}", self._verified(folder, name, manifest.files[name]))

    def _verified(self, folder: str, name: str, entry: FileEntry) -> Iterator[bytes]:
        file = VerifiedFile(self._copies.store, folder, name, entry, BlockCache())
        try:
            yield from file.every_block()
        except RefusedCheckpoint as error:
            raise StorageError(f"the copy in memory is damaged: {error}; the next save makes a new one") from error

    def _seal(self, folder: str, manifest: Manifest) -> None:
        if self._peers.rank == 0:
            self._upload(folder, manifest, [manifest.index_name, manifest.state_name])
            self._to.complete(manifest)


def _of_rank(manifest: Manifest, rank: int) -> list[str]:
    head = f"g{manifest.generation:04d}-r{rank:05d}-"
    return sorted(name for name in manifest.files if name.startswith(head))


def _next_nodes(nodes: list[int], node: int, wanted: int) -> list[int]:
    """Nodes that get the files of `node`: the next ones in a ring of all nodes."""
    ring = sorted(set(nodes))
    place = ring.index(node)
    return [ring[(place + step) % len(ring)] for step in range(1, min(wanted, len(ring) - 1) + 1)]


def _counterpart(nodes: list[int], rank: int, target_node: int) -> int:
    """Rank on `target_node` with the position that `rank` has on its own node, modulo the ranks there."""
    place = [each for each, node in enumerate(nodes) if node == nodes[rank]].index(rank)
    there = [each for each, node in enumerate(nodes) if node == target_node]
    return there[place % len(there)]


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
