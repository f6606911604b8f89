"""Two ranks open what they saved, but one of them gets to see other bytes: a cache, a bad cable, a replaced file."""

from dataclasses import replace

import torch
from torch import nn

from gangline.checkpoint.loader import load
from gangline.checkpoint.saver import Saver
from gangline.storage.folder.store import FolderStore

KEY, PREFIX = b"one-sided", "runs/p/c/r/checkpoints"


class Flipping:
    """A store that shows one file with a flipped bit."""

    def __init__(self, store, name):
        self._store, self._name = store, name

    def __getattr__(self, name):
        if name == "read_into":
            raise AttributeError(name)
        return getattr(self._store, name)

    def get(self, key, start=0, size=None):
        blob = self._store.get(key, start, size)
        if blob is None or not key.endswith(self._name):
            return blob
        return replace(blob, data=bytes([blob.data[0] ^ 1]) + blob.data[1:])


def open_two_steps(rank, group, root, sees, name):
    """(step, refused files) on this rank; rank `sees` sees `name` of the newer step damaged."""
    store, model = FolderStore(root), nn.Linear(4, 2)
    saver = Saver(store=store, prefix=PREFIX, run="r", plan_digest="d", generation=1, key=KEY, group=group)
    for step in (1, 2):
        with torch.no_grad():
            model.weight.fill_(float(step))
        saver.save(model, None, {}, step=step, wait=True)
    saver.close()
    refused = []
    seen = Flipping(store, f"step-00000002/{name}") if rank == sees else store
    found = load(
        seen, PREFIX, model, None, key=KEY, group=group, on_refused=lambda *reported: refused.append(reported[0])
    )
    return found.step, model.weight.detach().mean().item(), refused


def open_replaced(rank, group, root, sees):
    """(step, refused files) where rank `sees` already sees what a newer generation saved of the newer step."""
    model, store, newer = nn.Linear(4, 2), FolderStore(f"{root}/store"), FolderStore(f"{root}/newer")
    for to, generation, steps in ((store, 1, (1, 2)), (newer, 1, (1,)), (newer, 2, (2,))):
        saver = Saver(store=to, prefix=PREFIX, run="r", plan_digest="d", generation=generation, key=KEY, group=group)
        for step in steps:
            saver.save(model, None, {}, step=step, wait=True)
        saver.close()
    refused = []
    seen = newer if rank == sees else store
    found = load(
        seen, PREFIX, model, None, key=KEY, group=group, on_refused=lambda *reported: refused.append(reported[0])
    )
    return found.step, refused
