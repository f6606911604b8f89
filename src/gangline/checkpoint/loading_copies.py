"""Loading by way of copies: which checkpoints the nodes together still have, and each rank's files brought to its node.

All ranks know the same: what each node holds is gathered once, and every move follows from that.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from gangline.checkpoint.copies import Copies
from gangline.checkpoint.envelope import MANIFEST, read_manifest
from gangline.checkpoint.peers import Peers
from gangline.checkpoint.refused import Refused
from gangline.checkpoint.transfer import Move, move
from gangline.errors import StorageError
from gangline.storage.protocol import ObjectStore


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
    copies: Copies
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
            move(moves, self.copies, self.peers)
        except StorageError as error:
            raise Refused(MANIFEST, str(error)) from error
        return sum(each.size_bytes for each in moves)

    def _moves(self, missing: list[list[str]]) -> list[Move]:
        """One for each node and file, from ranks of the nodes that have it, in turn."""
        moves: dict[tuple[int, str], Move] = {}
        for target, names in enumerate(missing):
            for name in names:
                holders = [rank for rank, held in enumerate(self.held) if name in held]
                source = holders[len(moves) % len(holders)]
                found = Move(f"{self.folder}/{name}", self.wanted[name], source, target)
                moves.setdefault((self.nodes[target], name), found)
        return sorted(moves.values())


def find_copies(copies: Copies, prefix: str, key: bytes, peers: Peers) -> list[CopiedCheckpoint]:
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


def _look(copies: Copies, prefix: str, key: bytes) -> dict[str, Any]:
    """Checkpoint folder -> fields of `_Seen`; what cannot be read is not there."""
    try:
        return {
            folder: {"generation": _generation(copies, folder, key), "files": files}
            for folder, files in copies.sizes(prefix).items()
        }
    except StorageError:
        return {}


def _generation(copies: Copies, folder: str, key: bytes) -> int:
    try:
        return read_manifest(copies.store, folder, key).generation
    except Refused:
        return -1


def _wanted(copies: Copies, folder: str, key: bytes) -> tuple[int, dict[str, int]]:
    """Step and files of a checkpoint by its manifest, which counts as one of them."""
    manifest = read_manifest(copies.store, folder, key)
    files = {name: entry.size_bytes for name, entry in manifest.files.items()}
    return manifest.step, files | {MANIFEST: copies.path(f"{folder}/{MANIFEST}").stat().st_size}
