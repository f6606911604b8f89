"""Loads the newest checkpoint that verifies into a model and its optimizer, whatever plan wrote it.

It is read from the store, or from the copies that the nodes have together.
Extra tensors of a strategy are filled if the checkpoint has them; others keep their values, and notes say so.
Parameters may be fused in the checkpoint where the model has them split, or the other way round.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gangline.checkpoint import dcp
from gangline.checkpoint.copy_transfer import FileTransfer, transfer_files
from gangline.checkpoint.dcp import StrictLoadPlanner
from gangline.checkpoint.format.folder import CheckpointFolder, CheckpointState
from gangline.checkpoint.format.fused_names import fusions
from gangline.checkpoint.format.fused_state import ConvertedState, Numbers, convert
from gangline.checkpoint.format.index import EXTRA, MODEL, OPTIMIZER, RANKS, Index, own_head
from gangline.checkpoint.format.manifest import MANIFEST, Manifest, RefusedCheckpoint, list_checkpoints, read_manifest
from gangline.checkpoint.host_tensors import DTYPES, local_chunk
from gangline.checkpoint.node_copies import NodeCopies
from gangline.checkpoint.peers import Peers
from gangline.checkpoint.reader import CheckpointReader
from gangline.checkpoint.state import LiveState, initialise_optimizer, live_state, restore_numbers
from gangline.errors import ConfigError, GanglineError, IntegrityError, StorageError
from gangline.spec.plan import FusedParameter
from gangline.storage.objects.protocol import ObjectStore


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint in the store, where every rank can read every file."""

    folder: str
    step: int
    """Step after which it was saved."""
    store: ObjectStore
    is_whole: bool = True
    """Whether `store` has all of its files."""

    def fetch_metadata(self) -> None:
        """Manifest, index and state are readable on every rank."""

    def fetch(self, names: Collection[str]) -> int:
        """Make files readable that this rank needs; the bytes that nodes sent each other for that. Collective."""
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
        """Copies of this node."""
        return self.copies.store

    @property
    def is_whole(self) -> bool:
        """Whether `store` has all of its files."""
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
        return sum(transfer.size_bytes for transfer in transfers)

    def _transfers(self, missing: list[list[str]]) -> list[FileTransfer]:
        """One transfer for each node and missing file; the ranks that have the file take turns as source."""
        transfers: dict[tuple[int, str], FileTransfer] = {}
        for target, names in enumerate(missing):
            for name in names:
                holders = [rank for rank, held in enumerate(self.held) if name in held]
                source = holders[len(transfers) % len(holders)]
                transfer = FileTransfer(f"{self.folder}/{name}", self.wanted[name], source, target)
                transfers.setdefault((self.nodes[target], name), transfer)
        return sorted(transfers.values())


CheckpointSource = StoredCheckpoint | CopiedCheckpoint
"""One checkpoint that is not verified yet; every call is collective."""


def find_copies(copies: NodeCopies, prefix: str, key: bytes, peers: Peers) -> list[CopiedCheckpoint]:
    """Checkpoints below `prefix` that the nodes have completely between them, newest first; collective."""
    gathered = peers.gather([copies.node, _scan(copies, prefix, key)])
    nodes = tuple(node for node, _ in gathered)
    checkpoints = []
    for folder in sorted({folder for _, of_rank in gathered for folder in of_rank}, reverse=True):
        views = [_NodeView(**of_rank.get(folder, {})) for _, of_rank in gathered]
        newest = max(range(peers.size), key=lambda rank: (views[rank].generation, -rank))
        if views[newest].generation < 0:
            continue
        step, wanted = peers.broadcast(_wanted(copies, folder, key) if peers.rank == newest else None, source=newest)
        held = tuple(frozenset(name for name, size in view.files.items() if wanted.get(name) == size) for view in views)
        if wanted.keys() <= frozenset().union(*held):
            checkpoints.append(CopiedCheckpoint(folder, step, wanted, nodes, held, copies, peers))
    return checkpoints


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


def wanted_extras(index: Index, extra: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors of `extra` to fill, by their stored name, and notes about the others."""
    wanted, notes = {}, []
    for name, tensor in extra.items():
        stored = index.tensors.get(EXTRA + name)
        if stored is None:
            notes.append(f"{EXTRA}{name} is not in the checkpoint: it is initialized")
        elif stored.shape != tuple(tensor.size()) or DTYPES[stored.dtype] != tensor.dtype:
            notes.append(f"{EXTRA}{name} is {stored.dtype} {stored.shape} in the checkpoint: it is initialized")
        else:
            wanted[EXTRA + name] = tensor
    dropped = (name for name in index.names(EXTRA) if name.removeprefix(EXTRA) not in extra)
    notes += [f"{name} belongs to another plan: it is not loaded" for name in dropped]
    return wanted, notes


def own_extras(index: Index, head: str) -> tuple[dict[str, Tensor], list[str]]:
    """New host tensors to fill for all names below `head`, a rank's own, and notes about those of other ranks."""
    own = {name: index.tensors[name] for name in index.names(head)}
    fresh = {name: torch.empty(tensor.shape, dtype=DTYPES[tensor.dtype]) for name, tensor in own.items()}
    others = [] if own else index.names(RANKS)
    note = "tensors of single ranks ({}, ...) belong to another number of ranks: they are not loaded"
    return fresh, [note.format(other) for other in others[:1]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """Result of a load, except the tensors, which are filled in place."""

    step: int
    prefix: str
    """Folder of the checkpoint."""
    numbers: dict[str, Any]
    rank_numbers: dict[str, Any] | None
    """Numbers that this rank passed; None if the checkpoint has none or another world size."""
    rank_extra: dict[str, Tensor]
    """More tensors of this rank, on the host; empty if the checkpoint has none or another world size."""
    from_copy: bool = False
    """Read from the memory of nodes."""
    peer_bytes: int = 0
    """Bytes of tensor files that were sent from node to node, in the whole gang."""
    is_stored: bool = True
    """The store has this step, too."""
    notes: tuple[str, ...] = ()
    """Tensors that were not loaded or are initialized, because the plan changed."""
    converted: tuple[str, ...] = ()
    """Parameters that were split or joined, by their names in the model: `layers.0.q, layers.0.k <- layers.0.qk`."""


def load(
    store: ObjectStore, prefix: str, model: nn.Module, optimizer: torch.optim.Optimizer | None, *, key: bytes,
    group: dist.ProcessGroup | None, at: str | None = None, on_refused: Callable[[str, str], None] | None = None,
    extra: Mapping[str, Tensor] | None = None,
    copies: NodeCopies | None = None, fused: Sequence[FusedParameter] = (), keeps_options: bool = False,
) -> Loaded | None:  # fmt: skip
    """Fill model and optimizer from the newest checkpoint below `prefix` that verifies; collective.

    Args:
        prefix: `<run_prefix>/checkpoints`.
        optimizer: None: the model alone. One that has not stepped yet gets its state tensors here.
        at: Folder of one checkpoint, `.../step-00000200`: this one or none.
        on_refused: Called with the store key of each refused file and the reason, on every rank.
        extra: More tensors to fill, as far as the checkpoint has them.
        copies: Of this node; tried before the store, unless `at` is given or a rank has none.
        fused: Parameters that the model has split where the checkpoint has them fused, or the other way round.
        keeps_options: The optimizer keeps its own rates, decays and momenta.

    Returns:
        None if there is no checkpoint.

    Raises:
        IntegrityError: All checkpoints were refused; model and optimizer must not be used.
        ConfigError: With `fused`: it, the checkpoint and the model do not fit each other.
        StorageError: The store failed.
    """
    peers = Peers(group)
    sources, refusals = _sources(store, prefix, at, copies, key, peers), []
    stored = {source.step for source in sources if isinstance(source, StoredCheckpoint)}
    for source in sources:
        try:
            loaded = _attempt(source, _Target(model, optimizer, extra or {}, tuple(fused), keeps_options), key, peers)
            return replace(loaded, is_stored=source.step in stored)
        except RefusedCheckpoint as error:
            place = "" if isinstance(source, StoredCheckpoint) else "copy of "
            refusals.append(f"{place}{source.folder}/{error}")
            if on_refused is not None:
                on_refused(f"{place}{source.folder}/{error.file}", error.reason)
    if refusals:
        raise IntegrityError(
            f"none of {len(refusals)} checkpoints below {prefix} may be loaded: " + "; ".join(refusals)
        )
    return None


def _sources(  # noqa: PLR0917 - what `load` was given
    store: ObjectStore, prefix: str, at: str | None, copies: NodeCopies | None, key: bytes, peers: Peers
) -> list[CheckpointSource]:
    """Checkpoints that may be loaded, newest first; of one step the copy before the store's."""

    def stored() -> list[tuple[str, int]]:
        return (
            [(at, 0)]
            if at is not None
            else [(checkpoint.prefix, checkpoint.step) for checkpoint in list_checkpoints(store, prefix)]
        )

    listed = peers.broadcast(peers.run_on_all(lambda: stored() if peers.rank == 0 else []))
    sources: list[CheckpointSource] = [StoredCheckpoint(folder, step, store) for folder, step in listed]
    have_copies = not peers.maximum(int(copies is None))[0]
    if copies is not None and have_copies and at is None:
        sources = [*find_copies(copies, prefix, key, peers), *sources]
    return sorted(sources, key=lambda source: source.step, reverse=True)


@dataclass(frozen=True, slots=True)
class _Opened:
    """A checkpoint whose signature, sizes, index and state are verified."""

    folder: CheckpointFolder
    index: Index
    state: CheckpointState


@dataclass(frozen=True, slots=True)
class _Target:
    """What to fill."""

    model: nn.Module
    optimizer: torch.optim.Optimizer | None
    extra: Mapping[str, Tensor]
    fused: Sequence[FusedParameter]
    keeps_options: bool

    def misfit(self, file: str, text: str) -> GanglineError:
        """The checkpoint is of another model: refused, as another may fit, or with rules of names a wrong rule."""
        return (
            ConfigError(f"with the rules of fused parameters {text}") if self.fused else RefusedCheckpoint(file, text)
        )


def _attempt(source: CheckpointSource, target: _Target, key: bytes, peers: Peers) -> Loaded:
    """Load one checkpoint; copies that cannot be read are refused, because there are other sources."""
    try:
        source.fetch_metadata()
        return _fill(peers.run_on_all(partial(_open, source, key)), target, source, peers)
    except StorageError as error:
        if isinstance(source, StoredCheckpoint):
            raise
        raise RefusedCheckpoint(MANIFEST, str(error)) from error


def _open(source: CheckpointSource, key: bytes) -> _Opened:
    folder = CheckpointFolder.open(source.store, source.folder, key, whole=source.is_whole)
    return _Opened(folder, folder.index(), folder.state())


def _fill(opened: _Opened, target: _Target, source: CheckpointSource, peers: Peers) -> Loaded:
    manifest, state = opened.folder.manifest, opened.state
    _require_same_generation(manifest, peers)
    converted_state = as_model(opened.index, state.optimizer, target.model, target.optimizer, target.fused, peers)
    index = converted_state.index
    live = peers.run_on_all(lambda: _template(manifest, index, target))
    _check_all_are_wanted(manifest, converted_state, live, target, peers)
    head = own_head(peers.rank, peers.size)
    extra, notes = wanted_extras(index, target.extra)
    own, more_notes = own_extras(index, head)
    equal = equal_values(converted_state, live)
    tensors = {**live.tensors, **extra, **own, **equal}
    peer_bytes = source.fetch(index.files_of({name: _box(tensor) for name, tensor in tensors.items()}))
    reader, planner = CheckpointReader(opened.folder, index), StrictLoadPlanner(manifest.index_name, target.misfit)
    dcp.load(tensors, reader=reader, planner=planner, peers=peers)
    peers.run_on_all(lambda: require_equal(converted_state, equal))
    if target.optimizer is not None and converted_state.numbers:
        restore_numbers(
            target.model,
            target.optimizer,
            converted_state.numbers,
            file=manifest.state_name,
            keeps_options=target.keeps_options,
        )
    return Loaded(
        step=manifest.step, prefix=opened.folder.prefix, numbers=state.numbers,
        rank_numbers=state.ranks[peers.rank] if len(state.ranks) == peers.size else None,
        rank_extra={name.removeprefix(head): tensor for name, tensor in own.items()},
        from_copy=isinstance(source, CopiedCheckpoint), peer_bytes=peer_bytes, notes=(*notes, *more_notes),
        converted=converted_state.changes,
    )  # fmt: skip


def _box(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    local, offsets = local_chunk(tensor)
    return offsets, tuple(local.size())


def _require_same_generation(manifest: Manifest, peers: Peers) -> None:
    """Require that all ranks opened the same manifest, which may be replaced between two reads."""
    highest, lowest = peers.maximum(manifest.generation, -manifest.generation)
    if highest != -lowest:
        raise RefusedCheckpoint(
            "manifest.json", f"ranks read generations {-lowest} and {highest}; it was replaced between their reads"
        )


def _template(manifest: Manifest, index: Index, target: _Target) -> LiveState:
    """The live tensors to fill, this rank's part; refused if the checkpoint lacks one."""
    saved = set(index.names(OPTIMIZER))
    if target.optimizer is not None and saved:
        initialise_optimizer(target.model, target.optimizer, saved)
    live = live_state(target.model, target.optimizer)
    if missing := sorted(live.tensors.keys() - index.tensors.keys()):
        raise target.misfit(manifest.index_name, f"{_names(missing)} only in the model or optimizer")
    return live


def _check_all_are_wanted(
    manifest: Manifest, found: ConvertedState, live: LiveState, target: _Target, peers: Peers
) -> None:
    """Require that each stored tensor of model and optimizer belongs to some rank; raises on all ranks alike."""
    heads = (MODEL, OPTIMIZER) if target.optimizer is not None else (MODEL,)
    stored = sorted(name for name in found.tensors if name.startswith(heads))
    wanted = dict(zip(stored, map(bool, peers.maximum(*(int(name in live.tensors) for name in stored))), strict=True))
    unneeded = found.unneeded(wanted)
    if left := [name for name in stored if not wanted[name] and name not in unneeded]:
        raise target.misfit(manifest.index_name, f"{_names(left)} only in the checkpoint")


def _names(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{len(names)} names differ; {shown} {'is' if len(names) == 1 else 'are'}"


def as_model(  # noqa: PLR0917 - what a load has
    index: Index, numbers: Numbers, model: nn.Module, optimizer: torch.optim.Optimizer | None,
    rules: Sequence[FusedParameter], peers: Peers,
) -> ConvertedState:  # fmt: skip
    """The checkpoint by the names of the model; collective.

    Raises:
        ConfigError: On all ranks: a rule does not fit the checkpoint.
    """
    if not rules:
        return ConvertedState(index.tensors, numbers)
    if optimizer is None:  # its state may be of any kind
        index = Index(
            tensors={name: tensor for name, tensor in index.tensors.items() if not name.startswith(OPTIMIZER)}
        )
        numbers = {}
    own = [name.removeprefix(MODEL) for name in live_state(model, None).tensors]
    wanted = peers.union(dict.fromkeys(own, 0))
    stored = [name.removeprefix(MODEL) for name in index.names(MODEL)]
    return peers.run_on_all(lambda: convert(index, numbers, fusions(rules, stored, wanted)))


def equal_values(found: ConvertedState, live: LiveState) -> dict[str, Tensor]:
    """New host tensors to fill with what must be equal for the state of this rank."""
    names = {name for fused, parts in found.equal.items() if fused in live.tensors for name in parts}
    stored = {name: found.tensors[name] for name in sorted(names)}
    return {name: torch.empty(tensor.shape, dtype=DTYPES[tensor.dtype]) for name, tensor in stored.items()}


def require_equal(found: ConvertedState, values: Mapping[str, Tensor]) -> None:
    """
    Raises:
        ConfigError: Parts that are joined have other values than each other.
    """
    for parts in found.equal.values():
        own = {name: values[name].item() for name in parts if name in values}
        if len(set(own.values())) > 1:
            raise ConfigError(f"parts that become one parameter have one state, found {own}")
