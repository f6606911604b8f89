"""Time to the loss of DiLoCo when workers are unlike, on a virtual clock.

    python benchmarks/train/parameter_server.py [--steps 300] [--seeds 3] [--momentum 0.9] [--json FILE]

Workers train a small network on drawn functions for real, with the encodings, merges and blending of
`gangline.train.parameters`; only their clocks are simulated: a step takes one second, of one worker three, and in
2 % of the steps a worker pauses for ten. DiLoCo waits for all workers at the end of each block, servers merge three
pushes or what has come within twenty seconds, and workers take what was merged four times in a block. Printed are the
seconds until DiLoCo's last loss, as a share of DiLoCo's own time: the target is 0.7 among unlike workers. Among equal
ones nothing is claimed.
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
from gangline.train.parameters.worker import TAKES, BlendedWeights, ChangeEncoder

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

    def trained(self, row: Tensor, steps: range, optimizer_state: dict) -> tuple[Tensor, dict]:
        """Weights after `steps` from `row`, and the state of the worker's optimizer."""
        nn.utils.vector_to_parameters(row.clone(), self.model.parameters())
        inner = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        if optimizer_state:
            inner.load_state_dict(optimizer_state)
        for step in steps:
            x, y = self.batch(step)
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
            steps = steps_of(number * WORKERS + worker)
            after, states[worker] = task.trained(row, steps, states[worker])
            mean += decoded(encoders[worker], shard, row - after, after) / WORKERS
        now += max(clocks.block_seconds(worker) for worker in range(WORKERS))
        nesterov(row, momentum, mean, lr=LR, decay=decay, share=1.0)
        curve.append((now, task.loss(row)))
    return curve


def steps_of(block: int, part: int | None = None) -> range:
    """Steps of a block, or of one of its parts."""
    if part is None:
        return range(block * BLOCK, (block + 1) * BLOCK)
    return range(block * BLOCK + part * BLOCK // TAKES, block * BLOCK + (part + 1) * BLOCK // TAKES)


@dataclass
class Worker:
    encoder: ChangeEncoder
    blend: BlendedWeights
    progress: Tensor
    """Change of the weights by the block that is trained."""
    block: int
    seconds: float
    """Time of each part of the block."""
    state: dict
    part: int = 0
    version: int = 0
    """Newest one at the begin of the block."""


class Asynchronous:
    """Workers push when they are ready; a merge takes three pushes, or what came within the grace."""

    def __init__(self, task: Task, clocks: Clocks, decay: float) -> None:
        self.task, self.clocks, self.decay = task, clocks, decay
        self.row, self.momentum = task.start.clone(), torch.zeros_like(task.start)
        self.shard = RowShard(0, 0, len(self.row))
        self.version, self.done, self.following = 0, BlockSet(), WORKERS
        self.waiting: list[tuple[float, int, int, Tensor]] = []
        """Time, block, version and change of each push that is not merged."""
        self.curve: Curve = []
        self.workers = [self._worker(number) for number in range(WORKERS)]

    def _worker(self, number: int) -> Worker:
        size, seconds = len(self.row), self.clocks.block_seconds(number) / TAKES
        encoder = ChangeEncoder([self.shard], size, COMPRESSION)
        found = Worker(
            encoder, BlendedWeights([self.shard], size), torch.zeros(size), block=number, seconds=seconds, state={}
        )
        self._take(found)
        return found

    def _take(self, worker: Worker) -> None:
        worker.blend.take({0: Arrival(head_of(self.version, self.done), self.row.clone())})

    def run(self, seconds: float) -> Curve:
        ends = [(worker.seconds, number) for number, worker in enumerate(self.workers)]
        heapq.heapify(ends)
        while ends:
            now, number = heapq.heappop(ends)
            if now > seconds:
                break
            if self.waiting and now - self.waiting[0][0] >= GRACE_SECONDS:
                self._merge(self.waiting[0][0] + GRACE_SECONDS)
            worker = self.workers[number]
            row = worker.blend.weights() + worker.progress
            after, worker.state = self.task.trained(row, steps_of(worker.block, worker.part), worker.state)
            worker.progress = worker.progress + (after - row)
            worker.part += 1
            if worker.part == TAKES:
                self._push(worker, after, now)
                worker.seconds = self.clocks.block_seconds(number) / TAKES
            self._take(worker)
            heapq.heappush(ends, (now + worker.seconds, number))
        return self.curve

    def _push(self, worker: Worker, after: Tensor, now: float) -> None:
        """The block ends, and the next one begins with what is merged then."""
        worker.blend.push(worker.block, worker.progress)
        change = decoded(worker.encoder, self.shard, -worker.progress, after)
        self.waiting.append((now, worker.block, worker.version, change))
        if len(self.waiting) >= QUORUM:
            self._merge(now)
        worker.progress, worker.part = torch.zeros_like(worker.progress), 0
        worker.block, worker.version = self.following, self.version
        self.following += 1

    def _merge(self, now: float) -> None:
        shares = [1 / (1 + (self.version - began) / WORKERS) for _, _, began, _ in self.waiting]
        changes = [change for _, _, _, change in self.waiting]
        mean = sum(share * change for share, change in zip(shares, changes, strict=True)) / sum(shares)
        nesterov(self.row, self.momentum, mean, lr=LR, decay=self.decay, share=len(self.waiting) / WORKERS)
        self.version, self.done = self.version + 1, self.done.with_blocks(block for _, block, _, _ in self.waiting)
        self.waiting = []
        self.curve.append((now, self.task.loss(self.row)))


def decoded(encoder: ChangeEncoder, shard: RowShard, change: Tensor, after: Tensor) -> Tensor:
    return codec_of(shard, COMPRESSION).decode(encoder.encode(change, after)[0])


def head_of(version: int, done: BlockSet) -> Head:
    return Head(run="", shard=0, version=version, file="", weights_sha256="", state_sha256="", done=done)


def compare(seed: int, rounds: int, *, momentum: float, unlike: bool) -> dict[str, float]:
    """Both ways over the same virtual time."""
    task = Task(seed)
    diloco = synchronous(task, Clocks(seed, unlike=unlike), rounds, momentum)
    end, wanted = diloco[-1]
    ours = Asynchronous(task, Clocks(seed, unlike=unlike), momentum).run(end)
    reached = next((now for now, loss in ours if loss <= wanted), float("inf"))
    return {"diloco_loss": wanted, "loss": ours[-1][1], "share_of_time": reached / end, "merges": len(ours)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300, help="Steps of each worker under DiLoCo.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--momentum", type=float, default=0.9, help="Outer momentum of both.")
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
