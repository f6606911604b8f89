"""What each rank reads of a sharded checkpoint: its own files, and of the others' no more than the numbers."""

import torch
from tests.checkpoint.forked import run_gang
from torch import nn
from torch.distributed.fsdp import fully_shard

from gangline.checkpoint.loader import load
from gangline.checkpoint.saver import Saver
from gangline.checkpoint.writer import SMALL_BYTES
from gangline.storage.folder.store import FolderStore

KEY, PREFIX, WIDTH = b"reading", "runs/p/c/r/checkpoints", 256


class Counting:
    """A store that notes the bytes it read, by file."""

    def __init__(self, store):
        self._store, self.read_bytes = store, {}

    def __getattr__(self, name):
        return getattr(self._store, name)

    def read_into(self, key, start, buffers):
        found = self._store.read_into(key, start, buffers)
        name = key.rpartition("/")[2]
        self.read_bytes[name] = self.read_bytes.get(name, 0) + found[0]
        return found


def save_and_open(rank, group, root):
    """Bytes this rank read of each file that tensors were filled from, and of its own part of the state."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, WIDTH)).sum().backward()
    optimizer.step()
    store = Counting(FolderStore(root))
    saver = Saver(store=store, prefix=PREFIX, run="r", plan_digest="d", generation=1, key=KEY, group=group)
    saver.save(model, optimizer, {}, step=1, wait=True)
    saver.close()
    load(store, PREFIX, model, optimizer, key=KEY, group=group)
    return store.read_bytes, 3 * 4 * sum(each.to_local().numel() for each in model.parameters())


def test_a_rank_reads_its_own_files_and_of_the_others_no_more_than_the_numbers(tmp_path):
    for rank, (read_bytes, own_bytes) in enumerate(run_gang(2, save_and_open, str(tmp_path))):
        own = sum(size for name, size in read_bytes.items() if f"-r{rank:05d}-" in name)
        assert own_bytes < own < own_bytes + SMALL_BYTES
        others = {name: size for name, size in read_bytes.items() if f"-r{rank:05d}-" not in name}
        assert sum(others.values()) < SMALL_BYTES
        assert list(others) == ([] if rank == 0 else ["g0001-r00000-0.safetensors"])
