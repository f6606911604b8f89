"""Sources that a checkpoint can be loaded from: the store, or the copies that the nodes together still have."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Protocol

from gangline.checkpoint.copy_transfer import FileTransfer, transfer_files
from gangline.checkpoint.format.manifest import MANIFEST, RefusedCheckpoint, read_manifest
from gangline.checkpoint.node_copies import NodeCopies
from gangline.checkpoint.peers import Peers
from gangline.errors import StorageError
from gangline.storage.objects.protocol import ObjectStore


class CheckpointSource(Protocol):
    """One checkpoint, not yet verified; every call is collective."""

    @property
    def folder(self) -> str: ...

    @property
    def step(self) -> int: ...

    @property
    def store(self) -> ObjectStore:
        """What this rank reads it from."""
        ...

    @property
    def is_whole(self) -> bool:
        """Does `store` have every file of it?"""
        ...

    def bring_papers(self) -> None:
        """Make manifest, index and state readable on every rank."""
        ...

    def bring(self, names: Collection[str]) -> int:
        """Make files readable; the names are this rank's own wish. Raises `Refused` on all ranks alike.

        Returns:
            Bytes that went from node to node for it, all ranks' wishes together: alike on all ranks.
        """
        ...


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """In the store every rank reads everything."""

    folder: str
    step: int
    store: ObjectStore
    is_whole: bool = True

    def bring_papers(self) -> None:
        """They are there."""

    def bring(self, names: Collection[str]) -> int:
        """They are there."""
        del names
        return 0


@dataclass(frozen=True, slots=True)
class CopiedCheckpoint:
    """One checkpoint of which the nodes together have every file; its calls are collective over `peers`."""

    folder: str
    """As in the store: `<prefix>/step-00000200`."""
    step: int
    wanted: dict[str, int]
    """Its files and their sizes, the manifest among them."""
    nodes: tuple[int, ...]
    """Node of each rank."""
    held: tuple[frozenset[str], ...]
    """Files that each rank's node has, whole."""
    copies: NodeCopies
    peers: Peers

    @property
    def store(self) -> ObjectStore:
        return self.copies.store

    @property
    def is_whole(self) -> bool:
        return False

    def bring_papers(self) -> None:
        """Manifest, index and state to every node."""
        self.bring([name for name in self.wanted if name.endswith(".json")])

    def bring(self, names: Collection[str]) -> int:
        """`names`, which may differ from rank to rank, to this rank's node; raises on all ranks alike."""
        missing = sorted(set(names) - self.held[self.peers.rank])
        moves = self._moves(self.peers.gather(missing))
        try:
            transfer_files(moves, self.copies, self.peers)
        except StorageError as error:
            raise RefusedCheckpoint(MANIFEST, str(error)) from error
        return sum(each.size_bytes for each in moves)

    def _moves(self, missing: list[list[str]]) -> list[FileTransfer]:
        """One for each node and file, from ranks of the nodes that have it, in turn."""
        moves: dict[tuple[int, str], FileTransfer] = {}
        for target, names in enumerate(missing):
            for name in names:
                holders = [rank for rank, held in enumerate(self.held) if name in held]
                source = holders[len(moves) % len(holders)]
                found = FileTransfer(f"{self.folder}/{name}", self.wanted[name], source, target)
                moves.setdefault((self.nodes[target], name), found)
        return sorted(moves.values())


def find_copies(copies: NodeCopies, prefix: str, key: bytes, peers: Peers) -> list[CopiedCheckpoint]:
    """Checkpoints below `prefix` that the nodes together have whole, newest first; collective."""
    told = peers.gather([copies.node, _look(copies, prefix, key)])
    nodes = tuple(node for node, _ in told)
    found = []
    for folder in sorted({folder for _, of_rank in told for folder in of_rank}, reverse=True):
        seen = [_Seen(**of_rank.get(folder, {})) for _, of_rank in told]
        newest = max(range(peers.size), key=lambda rank: (seen[rank].generation, -rank))
        if seen[newest].generation < 0:
            continue
        step, wanted = peers.share(_wanted(copies, folder, key) if peers.rank == newest else None, source=newest)
        held = tuple(frozenset(name for name, size in each.files.items() if wanted.get(name) == size) for each in seen)
        if wanted.keys() <= frozenset().union(*held):
            found.append(CopiedCheckpoint(folder, step, wanted, nodes, held, copies, peers))
    return found


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a rank sees of one checkpoint in its node's copies."""

    generation: int = -1
    """Of the manifest there; -1: none that verifies."""
    files: dict[str, int] = field(default_factory=dict)


def _look(copies: NodeCopies, prefix: str, key: bytes) -> dict[str, Any]:
    """Checkpoint folder -> fields of `_Seen`; what cannot be read is not there."""
    try:
        return {
            folder: {"generation": _generation(copies, folder, key), "files": files}
            for folder, files in copies.sizes(prefix).items()
        }
    except StorageError:
        return {}


def _generation(copies: NodeCopies, folder: str, key: bytes) -> int:
    try:
        return read_manifest(copies.store, folder, key).generation
    except RefusedCheckpoint:
        return -1


def _wanted(copies: NodeCopies, folder: str, key: bytes) -> tuple[int, dict[str, int]]:
    """Step and files of a checkpoint by its manifest, which counts as one of them."""
    manifest = read_manifest(copies.store, folder, key)
    files = {name: entry.size_bytes for name, entry in manifest.files.items()}
    return manifest.step, files | {MANIFEST: copies.path(f"{folder}/{MANIFEST}").stat().st_size}
