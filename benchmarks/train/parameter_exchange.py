"""Blocks a minute of workers that exchange through a folder store, and through an actor server of Ray.

    BENCH_RAY=/path/to/python python benchmarks/train/parameter_exchange.py [--seconds 60] [--block 2] [--megabytes 10]

Four workers, one of them three times slower, pause for ten steps in 2 % of their steps, the same draws on both sides.
Training is a sleep: what is compared is how changes and weights travel. Encoding, merging and blending are those of
`gangline.train.parameters` on both sides; the rival is one actor that keeps weights and momentum and merges, and four
actors that push to it without waiting and pull once a block. BENCH_RAY names a Python with ray that finds the packages
of this environment, too. With `--cut` the second worker has no line for a third of the time: its store answers nothing,
or its raylet is stopped, which its peers cannot tell from a cut line.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from parameter_server import BLOCK, GRACE_SECONDS, LR, QUORUM, WORKERS, Clocks

from gangline.errors import StorageError
from gangline.planner.plans import server_plan, worker_plan
from gangline.spec.compression import Compression
from gangline.spec.mesh import Mesh
from gangline.spec.parameter_server import ParameterPlan, ParameterServer
from gangline.spec.plan import CheckpointPolicy, Plan, ProgramSpec
from gangline.storage.open import open_store
from gangline.train.parameters.exchange import POLL_SECONDS, StoreExchange
from gangline.train.parameters.layout import (
    BlockPush,
    ParameterKeys,
    ParameterStore,
    RowLayout,
    RunBlocks,
    TensorPlace,
)
from gangline.train.parameters.merge import ShardMerger
from gangline.train.parameters.server import PushInbox
from gangline.train.parameters.worker import BlendedWeights, ChangeEncoder

ROOT = Path(__file__).resolve().parents[2]
KEY = b"k" * 32
MOST_BLOCKS = 100_000
SECOND = 2
"""Worker whose line is cut."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is compared; both sides read it."""

    seconds: float
    block_seconds: float
    size: int
    """Numbers of the row of weights."""
    cut: tuple[float, float] | None
    """Seconds between which the second worker has no line."""
    folder: str

    @property
    def plan(self) -> Plan:
        table = ParameterServer(workers=WORKERS, quorum=QUORUM, grace_seconds=self.scaled(GRACE_SECONDS))
        compression = Compression(kind="none", outer_steps=BLOCK, outer_lr=LR, outer_momentum=0.5)
        return Plan(
            run="bench", project="bench", name="bench", run_prefix="runs/bench/0/bench", strategy="none", mesh=Mesh(),
            program=ProgramSpec(task="bench:Bench"), steps=MOST_BLOCKS * BLOCK // WORKERS, global_batch=WORKERS,
            micro_batch=1, checkpoint=CheckpointPolicy(every=1),
            parameters=ParameterPlan(table=table, compression=compression),
        )  # fmt: skip

    def scaled(self, seconds: float) -> float:
        """Seconds of the model, in which a step takes one, as they pass here."""
        return seconds * self.block_seconds / BLOCK

    @property
    def layout(self) -> RowLayout:
        row = TensorPlace(name="row", shape=(self.size,))
        shard = self.plan.parameters.table.shard_bytes // 4
        return RowLayout(run="bench", parameters=(row,), buffers=(), shard_numbers=shard)


class Trainer:
    """A worker's training: a sleep of drawn length, and a change that does not depend on the weights."""

    def __init__(self, setting: Setting, worker: int) -> None:
        self._setting, self._worker = setting, worker
        self._clocks = Clocks(worker, unlike=True)
        self.change = 1e-3 * torch.randn(setting.size, generator=torch.Generator().manual_seed(worker))

    def train(self) -> torch.Tensor:
        """The change of a block."""
        time.sleep(self._setting.scaled(self._clocks.block_seconds(self._worker - 1)))
        return self.change


class CutStore:
    """A store that answers nothing for a while."""

    def __init__(self, store: Any, begins: float, ends: float) -> None:
        self._store, self._begins, self._ends = store, begins, ends

    def __getattr__(self, name: str) -> Any:
        if self._begins <= time.time() < self._ends:
            raise StorageError("the line is cut")
        return getattr(self._store, name)


def objects_of(setting: Setting) -> ParameterStore:
    return ParameterStore(open_store(f"file:{setting.folder}"), ParameterKeys.of(setting.plan), "bench", KEY)


def serve(setting: Setting, ready: Any) -> None:
    """The servers of gangline, one process."""
    torch.set_num_threads(1)
    ready.wait()
    until = time.time() + setting.seconds
    objects, plan = objects_of(setting), server_plan(setting.plan)
    blocks = RunBlocks.of(plan)
    while objects.read(RowLayout, objects.keys.layout) is None:
        time.sleep(POLL_SECONDS)
    mergers = [ShardMerger(objects, shard, plan, blocks=blocks) for shard in setting.layout.shards()]
    inbox = PushInbox(objects, shards=len(mergers), blocks=blocks)
    while time.time() < until:
        pushes, _ = inbox.read(min(each.head.done.mark for each in mergers))
        for merger in mergers:
            for push in pushes:
                merger.add(push)
            if merger.is_due():
                merger.merge()
        time.sleep(POLL_SECONDS)


def work(setting: Setting, worker: int, ready: Any) -> None:
    """A worker of gangline, one process."""
    torch.set_num_threads(1)
    objects, plan, layout = objects_of(setting), worker_plan(setting.plan, worker), setting.layout
    ready.wait()
    until = time.time() + setting.seconds
    if worker == SECOND and setting.cut is not None:
        begins = time.time()
        store = CutStore(objects.store, begins + setting.cut[0], begins + setting.cut[1])
        objects = replace(objects, store=store)
    exchange, trainer = StoreExchange(objects, plan, life="1"), Trainer(setting, worker)
    exchange.open(layout, torch.zeros(setting.size))
    exchange.start()
    shards, blocks = layout.shards(), RunBlocks.of(plan)
    blend = BlendedWeights(shards, setting.size)
    encoder = ChangeEncoder(shards, setting.size, plan.parameters.compression)
    while time.time() < until:
        if (block := exchange.take_block()) is None:
            exchange.wait(POLL_SECONDS)
            continue
        blend.take(exchange.take_arrivals())
        row, versions = blend.weights(), tuple(blend.versions)
        change = trainer.train()
        blend.push(block, -change)
        push = BlockPush(
            run="bench", block=block, attempt=1, worker=worker, versions=versions, samples=blocks.samples(block),
            loss=1.0, tokens=0, seconds=1.0, silent_seconds=0.0, wire_bytes=(0, 0), digests=(),
        )  # fmt: skip
        exchange.send(push, encoder.encode(change, row - change))


def of_gangline(setting: Setting) -> dict[str, float]:
    """Blocks by worker that were merged."""
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(WORKERS + 1)
    parts = [context.Process(target=serve, args=(setting, ready))]
    parts += [context.Process(target=work, args=(setting, each, ready)) for each in range(1, WORKERS + 1)]
    for part in parts:
        part.start()
    for part in parts:
        part.join()
    objects = objects_of(setting)
    pushes = [objects.read(BlockPush, entry.key) for entry in objects.store.list(objects.keys.pushes)]
    plan = server_plan(setting.plan)
    merger = ShardMerger(objects, setting.layout.shards()[0], plan, blocks=RunBlocks.of(plan))
    merged = [push[0].worker for push in pushes if push is not None and push[0].block in merger.head.done]
    return {str(worker): merged.count(worker) for worker in range(1, WORKERS + 1)}


def of_ray(python: str, setting: Setting) -> dict[str, float]:
    """The same of the rival."""
    given, found = Path(setting.folder) / "setting.json", Path(setting.folder) / "found.json"
    given.parent.mkdir(parents=True, exist_ok=True)
    given.write_text(json.dumps(asdict(setting)))
    environ = {
        **os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1",
        "RAY_raylet_start_wait_time_s": "300", "RAY_USAGE_STATS_ENABLED": "0",
    }  # fmt: skip
    subprocess.run([python, str(Path(__file__).with_name("parameter_ray.py")), given, found], env=environ, check=True)
    return json.loads(found.read_text())


def show(name: str, row: dict[str, float], seconds: float) -> None:
    blocks = [row[str(worker)] for worker in range(1, WORKERS + 1)]
    row["blocks_per_minute"] = sum(blocks) * 60 / seconds
    shown = ", ".join(f"{each:.0f}" for each in blocks)
    print(f"{name:10}{row['blocks_per_minute']:16.1f}{shown:>20}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0, help="Time of each side.")
    parser.add_argument("--block", type=float, default=2.0, help="Seconds of a block of a worker that is not slow.")
    parser.add_argument("--megabytes", type=float, default=10.0, help="Size of a push and of a pull.")
    parser.add_argument("--cut", action="store_true", help="Cut the line of one worker for a third of the time.")
    parser.add_argument("--json", type=Path, default=ROOT / ".gangline" / "benchmarks" / "parameter_exchange.json")
    asked = parser.parse_args()
    cut = (asked.seconds / 3, asked.seconds * 2 / 3) if asked.cut else None
    rival, rows = os.environ.get("BENCH_RAY"), {}
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(
            seconds=asked.seconds, block_seconds=asked.block, size=round(asked.megabytes * 250_000), cut=cut,
            folder=f"{folder}/store",
        )  # fmt: skip
        print(f"{'':10}{'blocks a minute':>16}{'by worker':>20}")
        rows["gangline"] = of_gangline(setting)
        show("gangline", rows["gangline"], asked.seconds)
        if rival:
            rows["ray"] = of_ray(rival, replace(setting, folder=f"{folder}/ray"))
            show("ray", rows["ray"], asked.seconds)
            ratio = rows["gangline"]["blocks_per_minute"] / rows["ray"]["blocks_per_minute"]
            print(f"gangline / ray {ratio:.2f}")
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(rows, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
