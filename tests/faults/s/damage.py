"""Two checkpoints of several shards, one to damage and an older one to fall back to."""

from dataclasses import dataclass

import torch
from torch import nn

from gangline.checkpoint import writer
from gangline.checkpoint.loader import load
from gangline.checkpoint.saver import Saver
from gangline.checkpoint.state import tensor_digests
from gangline.storage.folder.store import FolderStore

KEY = b"damage"
PREFIX = "runs/p/c/r/checkpoints"


@dataclass(frozen=True)
class Victim:
    """Steps 1 and 2 in a folder; `files` are the bytes of step 2, `stale` those of step 1 under the same names."""

    store: FolderStore
    digests: dict[int, dict[str, str]]
    files: dict[str, bytes]
    stale: dict[str, bytes]

    def put(self, name: str, data: bytes | None) -> None:
        key = f"{PREFIX}/step-00000002/{name}"
        if data is None:
            self.store.delete(key)
        else:
            self.store.put(key, data)

    def restore(self) -> None:
        for name, data in self.files.items():
            if self.store.get(f"{PREFIX}/step-00000002/{name}").data != data:
                self.put(name, data)


def victim(root, monkeypatch) -> Victim:
    monkeypatch.setattr(writer, "MAX_PART_BYTES", 600)
    store = FolderStore(root)
    model, optimizer = build(0)
    saver = Saver(store=store, prefix=PREFIX, run="r", plan_digest="d", generation=1, key=KEY, group=None)
    digests = {}
    for step in (1, 2):
        model(torch.ones(8)).sum().backward()
        optimizer.step()
        saver.save(model, optimizer, {}, step=step, wait=True)
        digests[step] = tensor_digests(model, optimizer)
    stale, files = (_files(store, step) for step in (1, 2))
    assert sum(name.endswith(".safetensors") for name in files) > 2
    return Victim(store, digests, files, stale)


def build(seed):
    torch.manual_seed(seed)
    model = nn.Linear(8, 16)
    return model, torch.optim.AdamW(model.parameters())


def opened(victim: Victim):
    """(step, are its tensors what was saved?, refused (file, reason))."""
    model, optimizer = build(9)
    refused = []
    loaded = load(
        victim.store,
        PREFIX,
        model,
        optimizer,
        key=KEY,
        group=None,
        on_refused=lambda *reported: refused.append(reported),
    )
    return loaded.step, tensor_digests(model, optimizer) == victim.digests[loaded.step], refused


def _files(store, step):
    folder = f"{PREFIX}/step-{step:08d}/"
    return {entry.key.removeprefix(folder): store.get(entry.key).data for entry in store.list(folder)}
