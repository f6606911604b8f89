"""Opening the newest good checkpoint into a model and its optimizer, whatever plan wrote it.

All ranks try the same checkpoint at the same time: what one refuses, all refuse, and all take the next older one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from gangline.checkpoint import dcp
from gangline.checkpoint.envelope import Manifest, list_checkpoints
from gangline.checkpoint.folder import CheckpointFolder, State
from gangline.checkpoint.index import MODEL, OPTIMIZER, Index
from gangline.checkpoint.peers import Peers
from gangline.checkpoint.planners import StrictLoadPlanner
from gangline.checkpoint.reader import CheckpointReader
from gangline.checkpoint.refused import Refused
from gangline.checkpoint.state import LiveState, initialise_optimizer, live_state, restore_numbers
from gangline.errors import IntegrityError
from gangline.storage.protocol import ObjectStore


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """What was opened, beside the tensors that are in place now."""

    step: int
    generation: int
    prefix: str
    """Folder of the checkpoint."""
    numbers: dict[str, Any]
    rank_numbers: dict[str, Any] | None
    """Of this rank; None where the checkpoint has none or another world size."""


def load(
    store: ObjectStore, prefix: str, model: nn.Module, optimizer: torch.optim.Optimizer | None, *, key: bytes,
    group: dist.ProcessGroup | None, at: str | None = None, on_refused: Callable[[str, str], None] | None = None,
    ed25519_public_key: bytes | None = None,
) -> Loaded | None:  # fmt: skip
    """Fill model and optimizer from the newest checkpoint below `prefix` that verifies; collective.

    Args:
        prefix: `<run_prefix>/checkpoints`.
        optimizer: None: the model alone. One that has not stepped yet gets its state tensors here.
        at: Folder of one checkpoint, `.../step-00000200`: this one or none.
        on_refused: Told the store key of each refused file and the reason, on every rank.
        ed25519_public_key: 32 bytes; where given, manifests must carry a signature of this key besides.

    Returns:
        None where there is no checkpoint at all.

    Raises:
        IntegrityError: There are checkpoints, and all were refused: model and optimizer are not to be used.
        StorageError: The store failed; nothing is said about the checkpoints.
    """
    peers = Peers(group)
    folders = peers.share(peers.together(lambda: _candidates(store, prefix, at) if peers.rank == 0 else []))
    refusals = []
    for folder in folders:
        try:
            opened = peers.together(partial(_open, store, folder, key, ed25519_public_key))
            return _fill(opened, model, optimizer, peers)
        except Refused as error:
            refusals.append(f"{folder}/{error}")
            if on_refused is not None:
                on_refused(f"{folder}/{error.file}", error.reason)
    if refusals:
        raise IntegrityError(
            f"none of {len(refusals)} checkpoints below {prefix} may be loaded: " + "; ".join(refusals)
        )
    return None


def _candidates(store: ObjectStore, prefix: str, at: str | None) -> list[str]:
    return [found.prefix for found in list_checkpoints(store, prefix)] if at is None else [at]


@dataclass(frozen=True, slots=True)
class _Opened:
    """A checkpoint whose signature, sizes, index and state are verified."""

    folder: CheckpointFolder
    index: Index
    state: State


def _open(store: ObjectStore, prefix: str, key: bytes, ed25519_public_key: bytes | None) -> _Opened:
    folder = CheckpointFolder.open(store, prefix, key, ed25519_public_key=ed25519_public_key)
    return _Opened(folder, folder.index(), folder.state())


def _fill(opened: _Opened, model: nn.Module, optimizer: torch.optim.Optimizer | None, peers: Peers) -> Loaded:
    manifest, state = opened.folder.manifest, opened.state
    _agree(manifest, peers)
    live = peers.together(lambda: _template(manifest, opened.index, model, optimizer))
    reader = CheckpointReader(opened.folder, opened.index)
    dcp.load(dict(live.tensors), reader=reader, planner=StrictLoadPlanner(manifest.index_name), peers=peers)
    if optimizer is not None and state.optimizer:
        restore_numbers(model, optimizer, state.optimizer, file=manifest.state_name)
    return Loaded(
        step=manifest.step, generation=manifest.generation, prefix=opened.folder.prefix, numbers=state.numbers,
        rank_numbers=state.ranks[peers.rank] if len(state.ranks) == peers.size else None,
    )  # fmt: skip


def _agree(manifest: Manifest, peers: Peers) -> None:
    """The manifest may be replaced between two ranks' reads: they must have opened the same one."""
    highest, lowest = peers.most(manifest.generation, -manifest.generation)
    if highest != -lowest:
        raise Refused("manifest.json", f"ranks read generations {-lowest} and {highest}; it was replaced meanwhile")


def _template(manifest: Manifest, index: Index, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> LiveState:
    """The live tensors to fill: neither more nor fewer than the checkpoint has."""
    saved = set(index.names(OPTIMIZER))
    if optimizer is not None and saved:
        initialise_optimizer(model, optimizer, saved)
    live = live_state(model, optimizer)
    heads = (MODEL, OPTIMIZER) if optimizer is not None else (MODEL,)
    stored = {name for name in index.tensors if name.startswith(heads)}
    if missing := sorted(stored ^ live.tensors.keys()):
        where = "in the checkpoint" if missing[0] in stored else "in the model or optimizer"
        raise Refused(manifest.index_name, f"{len(missing)} names differ; {missing[0]} is only {where}")
    return live
