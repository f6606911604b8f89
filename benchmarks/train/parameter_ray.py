"""Rival of `parameter_exchange.py`, which starts it: an actor of Ray that merges, and actors that train and push to it.

python benchmarks/train/parameter_ray.py SETTING.json FOUND.json
"""

import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
import torch
from parameter_exchange import SECOND, Setting, Trainer
from parameter_server import GRACE_SECONDS, LR, QUORUM, WORKERS
from ray.cluster_utils import Cluster

from gangline.train.parameters.exchange import Arrival
from gangline.train.parameters.layout import BlockSet, Head
from gangline.train.parameters.merge import nesterov
from gangline.train.parameters.worker import BlendedWeights, ChangeEncoder

STORE_BYTES = 1 << 30
START_SECONDS = 300
SHORTEST_WAIT = 0.1


@ray.remote(num_cpus=0, max_concurrency=1)
class Server:
    """Weights and momentum; merges as soon as a merge is due, whoever calls."""

    def __init__(self, setting: Setting) -> None:
        torch.set_num_threads(1)
        self._setting = setting
        self._row, self._momentum = torch.zeros(setting.size), torch.zeros(setting.size)
        self._version, self._next, self._done = 0, 0, BlockSet()
        self._waiting: list[tuple[int, int, Any]] = []
        self._first = 0.0
        self._merged = dict.fromkeys(range(1, WORKERS + 1), 0)

    def take(self) -> int:
        self._next += 1
        return self._next - 1

    def push(self, worker: int, block: int, version: int, change: Any) -> None:
        self._first = self._first if self._waiting else time.monotonic()
        self._waiting.append((block, version, torch.tensor(change)))
        self._merged[worker] += 1
        self._merge()

    def pull(self, known: int) -> tuple[int, BlockSet, Any]:
        self._merge()
        return self._version, self._done, self._row.numpy() if self._version > known else None

    def merged(self) -> dict[int, int]:
        return self._merged

    def _merge(self) -> None:
        late = time.monotonic() - self._first >= self._setting.scaled(GRACE_SECONDS)
        if not self._waiting or (len(self._waiting) < QUORUM and not late):
            return
        shares = [1 / (1 + (self._version - version) / WORKERS) for _, version, _ in self._waiting]
        mean = torch.zeros_like(self._row)
        for share, (_, _, change) in zip(shares, self._waiting, strict=True):
            mean.add_(change, alpha=share / sum(shares))
        row = self._row.clone()  # a pull may still read the one before
        nesterov(row, self._momentum, mean, lr=LR, decay=0.5, share=len(self._waiting) / WORKERS)
        self._row, self._version = row, self._version + 1
        self._done = self._done.with_blocks(block for block, _, _ in self._waiting)
        self._waiting = []


@ray.remote(num_cpus=1)
class Worker:
    """Trains, pushes without waiting, and pulls once a block."""

    def __init__(self, setting: Setting, worker: int, server: Any) -> None:
        torch.set_num_threads(1)
        self._setting, self._worker, self._server = setting, worker, server

    def ready(self) -> None:
        """Answer, once this process runs."""

    def run(self, begins: float, until: float) -> None:
        shards, size, server = self._setting.layout.shards(), self._setting.size, self._server
        blend, trainer = BlendedWeights(shards, size), Trainer(self._setting, self._worker)
        encoder = ChangeEncoder(shards, size, self._setting.plan.parameters.compression)
        time.sleep(max(0.0, begins - time.time()))
        version, flying, most = -1, [], self._setting.plan.parameters.table.max_ahead
        while time.time() < until:
            block, (newest, done, row) = ray.get([server.take.remote(), server.pull.remote(version)])
            if row is not None:
                version, row = newest, torch.tensor(row)
                blend.take({each.number: Arrival(head(version, done), row[each.start : each.stop]) for each in shards})
            weights = blend.weights()
            change = trainer.train()
            blend.push(block, -change)
            files = encoder.encode(change, weights - change)
            sent = torch.cat([next(iter(each.values())) for each in files]).numpy()
            flying.append(server.push.remote(self._worker, block, version, sent))
            if len(flying) > most:
                _, flying = ray.wait(flying, num_returns=1)


def head(version: int, done: BlockSet) -> Head:
    return Head(run="", shard=0, version=version, file="", weights_sha256="", state_sha256="", done=done)


def compare(setting: Setting) -> dict[str, float]:
    """Blocks by worker that the server got."""
    args = {"num_cpus": WORKERS, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=args)
    far = cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES, resources={"far": 1}) if setting.cut else None
    ray.init(address=cluster.address, log_to_driver=False)
    server = Server.options(num_cpus=1 if far else 0).remote(setting)
    workers = [
        Worker.options(resources={"far": 1} if far and each == SECOND else {}).remote(setting, each, server)
        for each in range(1, WORKERS + 1)
    ]
    ray.get([server.merged.remote(), *(each.ready.remote() for each in workers)])
    begins = time.time() + 1.0
    runs = [each.run.remote(begins, begins + setting.seconds) for each in workers]
    if setting.cut and far:
        raylet = far.all_processes["raylet"][0].process.pid
        time.sleep(max(0.0, begins + setting.cut[0] - time.time()))
        os.kill(raylet, signal.SIGSTOP)
        time.sleep(setting.cut[1] - setting.cut[0])
        os.kill(raylet, signal.SIGCONT)
    for each in runs:
        with suppress(ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
            ray.get(each, timeout=setting.seconds + START_SECONDS)
    merged = ray.get(server.merged.remote())
    ray.shutdown()
    cluster.shutdown()
    return {str(worker): count for worker, count in merged.items()}


if __name__ == "__main__":
    given, out = map(Path, sys.argv[1:3])
    out.write_text(json.dumps(compare(Setting(**json.loads(given.read_text())))))
