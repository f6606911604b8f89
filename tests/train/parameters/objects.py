"""A run's parameter server as objects in a folder store: a row of twelve numbers in four shards."""

from dataclasses import replace
from hashlib import sha256

import torch
from tests.train.parameters.parts import run_plan

from gangline.planner.plans import server_plan, worker_plans
from gangline.storage.folder.store import FolderStore
from gangline.train.parameters.encode import pack
from gangline.train.parameters.layout import (
    BlockPush,
    Claim,
    ParameterKeys,
    ParameterStore,
    RowLayout,
    RunBlocks,
    TensorPlace,
)
from gangline.train.parameters.merge import ShardMerger, put_first_version
from gangline.train.parameters.worker import ChangeEncoder

KEY = b"k" * 32
START = torch.linspace(-1.0, 1.0, 12)


class World:
    """Store, plans and layout; workers are simulated by whoever calls `push`."""

    def __init__(self, folder, *, store=None, **changes):
        self.plan = run_plan(**changes)
        self.servers, self.workers = server_plan(self.plan), worker_plans(self.plan)
        self.blocks = RunBlocks.of(self.servers)
        self.layout = RowLayout(
            run=self.plan.run, parameters=(TensorPlace(name="a", shape=(2, 3)), TensorPlace(name="b", shape=(4,))),
            buffers=(TensorPlace(name="m", shape=(2,)),), shard_numbers=4,
        )  # fmt: skip
        self.shards = self.layout.shards()
        self.store = store or FolderStore(folder)
        self.objects = self.over(self.store)
        self.encoders = {}
        for shard in self.shards:
            put_first_version(self.objects, shard, self.servers, START[shard.start : shard.stop])
        self.objects.put_if_absent(self.objects.keys.layout, self.layout)

    def over(self, store):
        """The same objects through another store."""
        return ParameterStore(store, ParameterKeys.of(self.plan), self.plan.run, KEY)

    def merger(self, shard=0, store=None, **options):
        objects = self.over(store) if store is not None else self.objects
        return ShardMerger(objects, self.shards[shard], self.servers, blocks=self.blocks, **options)

    def push(self, block, change, *, worker=1, versions=None, after=None, **changes):
        """Write the push of a block, with its claim."""
        compression = self.plan.parameters.compression
        encoder = self.encoders.setdefault(worker, ChangeEncoder(self.shards, self.layout.size, compression))
        files = [pack(each) for each in encoder.encode(change, START if after is None else after)]
        push = BlockPush(
            run=self.plan.run, block=block, attempt=1, worker=worker, versions=versions or (0,) * len(self.shards),
            samples=self.blocks.samples(block), loss=1.0, tokens=0, seconds=1.0, silent_seconds=0.0,
            wire_bytes=(0, 0), digests=tuple(sha256(each).hexdigest() for each in files),
        )  # fmt: skip
        push = replace(push, **changes)
        keys = self.objects.keys
        for number, data in enumerate(files):
            self.store.put(keys.change(push, number), data)
        self.objects.put_if_absent(keys.claim(block, 1), Claim(run=self.plan.run, worker=worker, life="1"))
        self.objects.put_if_absent(keys.push(block), push)
        return push


def change_of(number, size=12):
    """A change that no other number has."""
    return torch.randn(size, generator=torch.Generator().manual_seed(number))
