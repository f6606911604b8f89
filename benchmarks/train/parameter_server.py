"""Time to the loss of DiLoCo when workers are unlike, on a virtual clock.

    python benchmarks/train/parameter_server.py [--steps 300] [--seeds 2] [--momentum 0.5] [--json FILE]

Workers train a small network on drawn functions for real, with the encodings, merges and blending of
`gangline.train.parameters`; only their clocks are simulated: a step takes one second, of one worker three, and in
2 % of the steps a worker pauses for ten. DiLoCo waits for all workers at the end of each block, servers merge three
pushes or what has come within twenty seconds. Printed are the seconds until DiLoCo's last loss, as a share of DiLoCo's
own time: the target is 0.7 among unlike workers. Among equal ones nothing is claimed.
"""

import argparse
import heapq
import json
import random
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from gangline.spec.compression import Compression
from gangline.train.parameters.exchange import Arrival
from gangline.train.parameters.layout import BlockSet, Head, RowShard
from gangline.train.parameters.merge import codec_of, nesterov
from gangline.train.parameters.worker import BlendedWeights, ChangeEncoder

ROOT = Path(__file__).resolve().parents[2]
WORKERS, BLOCK, BATCH, WIDTH = 4, 20, 16, 64
QUORUM, GRACE_SECONDS = 3, 20.0
LR = 0.7
SLOW, PAUSE_SHARE, PAUSE_SECONDS = 3.0, 0.02, 10.0
COMPRESSION = Compression(kind="int8", outer_steps=BLOCK, outer_lr=LR)


class Task:
    """Functions of eight numbers that a wide network draws; the same for all ways to train."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.teacher = [torch.randn(size, generator=generator) / size[0] ** 0.5 for size in ((8, 256), (256, 1))]
        self.held_out = self.batch(-1, 1024)
        torch.manual_seed(seed)
        self.model = nn.Sequential(
            nn.Linear(8, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1)
        )
        self.start = nn.utils.parameters_to_vector(self.model.parameters()).detach()

    def batch(self, number: int, size: int = BATCH) -> tuple[Tensor, Tensor]:
        x = torch.randn(size, 8, generator=torch.Generator().manual_seed(number + 10**6))
        return x, torch.tanh(2 * x @ self.teacher[0]) @ self.teacher[1]

    def trained(self, row: Tensor, block: int, optimizer_state: dict) -> tuple[Tensor, dict]:
        """Weights after a block from `row`, and the state of the worker's optimizer."""
        nn.utils.vector_to_parameters(row.clone(), self.model.parameters())
        inner = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        if optimizer_state:
            inner.load_state_dict(optimizer_state)
        for step in range(BLOCK):
            x, y = self.batch(block * BLOCK + step)
            inner.zero_grad()
            nn.functional.mse_loss(self.model(x), y).backward()
            inner.step()
        return nn.utils.parameters_to_vector(self.model.parameters()).detach().clone(), inner.state_dict()

    @torch.no_grad()
    def loss(self, row: Tensor) -> float:
        nn.utils.vector_to_parameters(row.clone(), self.model.parameters())
        x, y = self.held_out
        return float(nn.functional.mse_loss(self.model(x), y))


class Clocks:
    """Seconds that blocks of each worker take."""

    def __init__(self, seed: int, *, unlike: bool) -> None:
        self._draws, self._unlike = random.Random(seed), unlike

    def block_seconds(self, worker: int) -> float:
        each = SLOW if self._unlike and worker == 0 else 1.0
        pauses = sum(self._draws.random() < PAUSE_SHARE for _ in range(BLOCK)) if self._unlike else 0
        return BLOCK * each + pauses * PAUSE_SECONDS


Curve = list[tuple[float, float]]
"""Virtual seconds and held-out loss."""


def synchronous(task: Task, clocks: Clocks, rounds: int, decay: float) -> Curve:
    """DiLoCo: every worker trains a block, then all of them merge."""
    row, momentum, now, curve = task.start.clone(), torch.zeros_like(task.start), 0.0, []
    shard = RowShard(0, 0, len(row))
    encoders = [ChangeEncoder([shard], len(row), COMPRESSION) for _ in range(WORKERS)]
    states: list[dict] = [{} for _ in range(WORKERS)]
    for number in range(rounds):
        mean = torch.zeros_like(row)
        for worker in range(WORKERS):
            after, states[worker] = task.trained(row, number * WORKERS + worker, states[worker])
            mean += decoded(encoders[worker], shard, row - after, after) / WORKERS
        now += max(clocks.block_seconds(worker) for worker in range(WORKERS))
        nesterov(row, momentum, mean, lr=LR, decay=decay, share=1.0)
        curve.append((now, task.loss(row)))
    return curve


@dataclass
class Worker:
    encoder: ChangeEncoder
    blend: BlendedWeights
    row: Tensor
    state: dict
    block: int
    version: int = 0


def asynchronous(task: Task, clocks: Clocks, seconds: float, decay: float) -> Curve:
    """Workers push when they are ready; a merge takes three pushes, or what came within the grace."""
    row, momentum, version, done = task.start.clone(), torch.zeros_like(task.start), 0, BlockSet()
    shard = RowShard(0, 0, len(row))
    curve: Curve = []
    workers = [
        Worker(
            ChangeEncoder([shard], len(row), COMPRESSION), BlendedWeights([shard], len(row)), row.clone(), {}, number
        )
        for number in range(WORKERS)
    ]
    for each in workers:
        each.blend.take({0: Arrival(head_of(0, done), row.clone())})
    ends = [(clocks.block_seconds(number), number) for number in range(WORKERS)]
    heapq.heapify(ends)
    waiting: list[tuple[float, int, int, Tensor]] = []
    following = WORKERS
    while ends:
        now, number = heapq.heappop(ends)
        if now > seconds:
            break
        if waiting and now - waiting[0][0] >= GRACE_SECONDS:
            version, done = merged(waiting, (row, momentum, decay), version, done)
            curve.append((waiting[0][0] + GRACE_SECONDS, task.loss(row)))
            waiting = []
        worker = workers[number]
        after, worker.state = task.trained(worker.row, worker.block, worker.state)
        change = worker.row - after
        worker.blend.push(worker.block, -change)
        waiting.append((now, worker.block, worker.version, decoded(worker.encoder, shard, change, after)))
        if len(waiting) >= QUORUM:
            version, done = merged(waiting, (row, momentum, decay), version, done)
            curve.append((now, task.loss(row)))
            waiting = []
        worker.blend.take({0: Arrival(head_of(version, done), row.clone())})
        worker.row, worker.version, worker.block = worker.blend.weights(), version, following
        following += 1
        heapq.heappush(ends, (now + clocks.block_seconds(number), number))
    return curve


def merged(waiting, outer: tuple[Tensor, Tensor, float], version: int, done: BlockSet) -> tuple[int, BlockSet]:
    """One merge in place of weights and momentum of `outer`, whose last entry is the decay."""
    row, momentum, decay = outer
    shares = [1 / (1 + (version - started) / WORKERS) for _, _, started, _ in waiting]
    mean = sum(share * change for share, (_, _, _, change) in zip(shares, waiting, strict=True)) / sum(shares)
    nesterov(row, momentum, mean, lr=LR, decay=decay, share=len(waiting) / WORKERS)
    return version + 1, done.with_blocks(block for _, block, _, _ in waiting)


def decoded(encoder: ChangeEncoder, shard: RowShard, change: Tensor, after: Tensor) -> Tensor:
    return codec_of(shard, COMPRESSION).decode(encoder.encode(change, after)[0])


def head_of(version: int, done: BlockSet) -> Head:
    return Head(run="", shard=0, version=version, file="", weights_sha256="", state_sha256="", done=done)


def compare(seed: int, rounds: int, *, momentum: float, unlike: bool) -> dict[str, float]:
    """Both ways over the same virtual time."""
    task = Task(seed)
    diloco = synchronous(task, Clocks(seed, unlike=unlike), rounds, momentum)
    end, wanted = diloco[-1]
    ours = asynchronous(task, Clocks(seed, unlike=unlike), end, momentum)
    reached = next((now for now, loss in ours if loss <= wanted), float("inf"))
    return {"diloco_loss": wanted, "loss": ours[-1][1], "share_of_time": reached / end, "merges": len(ours)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300, help="Steps of each worker under DiLoCo.")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--momentum", type=float, default=0.5, help="Outer momentum of both.")
    parser.add_argument("--json", type=Path, default=ROOT / ".gangline" / "benchmarks" / "parameter_server.json")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    print(f"{'workers':10}{'seed':>6}{'diloco loss':>13}{'loss':>9}{'time to that loss, of diloco':>31}{'merges':>8}")
    for unlike in (True, False):
        for seed in range(1, asked.seeds + 1):
            row = compare(seed, asked.steps // BLOCK, momentum=asked.momentum, unlike=unlike)
            name = "unlike" if unlike else "equal"
            print(
                f"{name:10}{seed:6}{row['diloco_loss']:13.4f}{row['loss']:9.4f}{row['share_of_time']:31.2f}{row['merges']:8}"
            )
            found.append(row | {"workers": name, "seed": seed})
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
