"""Sources of a checkpoint: the store, or the copies that the nodes have together."""

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
    """One checkpoint that is not verified yet; every call is collective."""

    @property
    def folder(self) -> str:
        """Prefix of the checkpoint, in the store or in the folder of copies."""
        ...

    @property
    def step(self) -> int:
        """Step after which it was saved."""
        ...

    @property
    def store(self) -> ObjectStore:
        """The store that this rank reads it from."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether `store` has all of its files."""
        ...

    def fetch_metadata(self) -> None:
        """Make manifest, index and state readable on every rank."""
        ...

    def fetch(self, names: Collection[str]) -> int:
        """Make files readable; the names are what this rank needs. Raises `RefusedCheckpoint` on all ranks alike.

        Returns:
            Bytes sent from node to node for all ranks' needs: equal on all ranks.
        """
        ...


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint in the store, where every rank can read every file."""

    folder: str
    step: int
    store: ObjectStore
    is_whole: bool = True

    def fetch_metadata(self) -> None:
        """Nothing to do."""

    def fetch(self, names: Collection[str]) -> int:
        """Nothing to do."""
        del names
        return 0


@dataclass(frozen=True, slots=True)
class CopiedCheckpoint:
    """A checkpoint that the nodes have completely between them; its calls are collective over `peers`."""

    folder: str
    """Folder name in the store: `<prefix>/step-00000200`."""
    step: int
    wanted: dict[str, int]
    """Its files and their sizes, the manifest among them."""
    nodes: tuple[int, ...]
    """Node of each rank."""
    held: tuple[frozenset[str], ...]
    """Complete files that each rank's node has."""
    copies: NodeCopies
    peers: Peers

    @property
    def store(self) -> ObjectStore:
        return self.copies.store

    @property
    def is_whole(self) -> bool:
        return False

    def fetch_metadata(self) -> None:
        """Manifest, index and state to every node."""
        self.fetch([name for name in self.wanted if name.endswith(".json")])

    def fetch(self, names: Collection[str]) -> int:
        """Copy `names`, which may differ from rank to rank, to this rank's node; raises on all ranks alike."""
        missing = sorted(set(names) - self.held[self.peers.rank])
        transfers = self._transfers(self.peers.gather(missing))
        try:
            transfer_files(transfers, self.copies, self.peers)
        except StorageError as error:
            raise RefusedCheckpoint(MANIFEST, str(error)) from error
        return sum(each.size_bytes for each in transfers)

    def _transfers(self, missing: list[list[str]]) -> list[FileTransfer]:
        """One transfer for each node and missing file; the ranks that have the file take turns as source."""
        transfers: dict[tuple[int, str], FileTransfer] = {}
        for target, names in enumerate(missing):
            for name in names:
                holders = [rank for rank, held in enumerate(self.held) if name in held]
                source = holders[len(transfers) % len(holders)]
                found = FileTransfer(f"{self.folder}/{name}", self.wanted[name], source, target)
                transfers.setdefault((self.nodes[target], name), found)
        return sorted(transfers.values())


def find_copies(copies: NodeCopies, prefix: str, key: bytes, peers: Peers) -> list[CopiedCheckpoint]:
    """Checkpoints below `prefix` that the nodes have completely between them, newest first; collective."""
    gathered = peers.gather([copies.node, _scan(copies, prefix, key)])
    nodes = tuple(node for node, _ in gathered)
    found = []
    for folder in sorted({folder for _, of_rank in gathered for folder in of_rank}, reverse=True):
        views = [_NodeView(**of_rank.get(folder, {})) for _, of_rank in gathered]
        newest = max(range(peers.size), key=lambda rank: (views[rank].generation, -rank))
        if views[newest].generation < 0:
            continue
        step, wanted = peers.broadcast(_wanted(copies, folder, key) if peers.rank == newest else None, source=newest)
        held = tuple(frozenset(name for name, size in each.files.items() if wanted.get(name) == size) for each in views)
        if wanted.keys() <= frozenset().union(*held):
            found.append(CopiedCheckpoint(folder, step, wanted, nodes, held, copies, peers))
    return found


@dataclass(frozen=True, slots=True)
class _NodeView:
    """What the node of a rank has of one checkpoint."""

    generation: int = -1
    """Generation that the manifest names; -1 if none verifies."""
    files: dict[str, int] = field(default_factory=dict)


def _scan(copies: NodeCopies, prefix: str, key: bytes) -> dict[str, Any]:
    """Checkpoint folder -> fields of `_NodeView`; empty if the copies cannot be read."""
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
    """Step and files of a checkpoint, the manifest included."""
    manifest = read_manifest(copies.store, folder, key)
    files = {name: entry.size_bytes for name, entry in manifest.files.items()}
    return manifest.step, files | {MANIFEST: copies.path(f"{folder}/{MANIFEST}").stat().st_size}
