"""Tensors that a strategy keeps beside model and optimizer, opened where the checkpoint has them.

A plan that changed asks for others than were saved: those it asks for and does not find stay as they are, those that
nobody asks for are left out. Both are told, neither is a fault.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from gangline.checkpoint.index import EXTRA, RANKS, Index, StoredTensor
from gangline.checkpoint.torch_types import DTYPES


def wanted_extras(index: Index, extra: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Of the live tensors `extra` those to fill, by their stored name; and what is said of the others."""
    wanted, notes = {}, []
    for name, tensor in extra.items():
        stored = index.tensors.get(EXTRA + name)
        if stored is None:
            notes.append(f"{EXTRA}{name} is not in the checkpoint: it starts anew")
        elif _differs(stored, tensor):
            notes.append(f"{EXTRA}{name} is {stored.dtype} {stored.shape} in the checkpoint: it starts anew")
        else:
            wanted[EXTRA + name] = tensor
    dropped = (name for name in index.names(EXTRA) if name.removeprefix(EXTRA) not in extra)
    notes += [f"{name} is of another plan: left out" for name in dropped]
    return wanted, notes


def own_extras(index: Index, head: str) -> tuple[dict[str, Tensor], list[str]]:
    """Fresh host tensors to fill for all that stands below `head`, a rank's own; and what is said of other ranks'."""
    own = {name: index.tensors[name] for name in index.names(head)}
    fresh = {name: torch.empty(each.shape, dtype=DTYPES[each.dtype]) for name, each in own.items()}
    others = [] if own else index.names(RANKS)
    notes = [f"tensors of single ranks ({others[0]}, ...) belong to another number of ranks"] if others else []
    return fresh, notes


def _differs(stored: StoredTensor, tensor: Tensor) -> bool:
    return stored.shape != tuple(tensor.size()) or DTYPES[stored.dtype] != tensor.dtype
