"""A training step through the runtime, against the same step in a bare torch loop, in one run; and its phases.

    python benchmarks/train/step_phases.py [--steps 60] [--strategies ddp,fsdp] [--json FILE]

Two gloo ranks train two equal models of `examples/bytegpt` turn by turn, a step of one after a step of the other, so
that a busy machine strikes both alike. The bare loop does what any loop does: fetch, forward, backward, clip by norm,
AdamW, read the loss. The runtime does its own besides: global loss, judging, clock, control word, events, heartbeat.
Bound: the ratio of medians is at most 1.02.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

os.environ["OMP_NUM_THREADS"] = "1"
ROOT = Path(__file__).resolve().parents[2]
MODEL = {"layers": 4, "width": 128, "context": 128}
BOUND = 1.02
WARM_UP = 5


@dataclass
class Times:
    runtime: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--strategies", default="ddp,fsdp")
    parser.add_argument("--json", type=Path, default=ROOT / ".gangline" / "benchmarks" / "step_phases.json")
    asked = parser.parse_args()
    found = {strategy: measure(strategy, asked.steps) for strategy in asked.strategies.split(",")}
    print(f"{'':8}{'runtime ms':>12}{'bare ms':>10}{'ratio':>8}   phases of a step, ms")
    for strategy, each in found.items():
        phases = "  ".join(f"{name} {seconds * 1e3:.2f}" for name, seconds in each["phases"].items())
        line = (
            f"{strategy:8}{each['runtime_seconds'] * 1e3:12.2f}{each['bare_seconds'] * 1e3:10.2f}{each['ratio']:8.3f}"
        )
        print(f"{line}   {phases}")
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps({"bound": BOUND, "steps": asked.steps, "strategies": found}, indent=2))
    return 0 if max(each["ratio"] for each in found.values()) <= BOUND else 1


def measure(strategy: str, steps: int) -> dict:
    from torch.distributed import TCPStore

    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        write_gang(home, strategy, steps)
        context = multiprocessing.get_context("spawn")
        ranks = [context.Process(target=be_rank, args=(rank, home, store.port)) for rank in (0, 1)]
        for each in ranks:
            each.start()
        for each in ranks:
            each.join()
        if any(each.exitcode for each in ranks):
            raise SystemExit(f"{strategy}: ranks ended with {[each.exitcode for each in ranks]}")
        times = json.loads((home / "times.json").read_text())
        lines = map(json.loads, (home / "out" / "ranks" / "0.jsonl").read_text().splitlines())
        phases = [each["phases"] for each in lines if each["event"] == "step"][WARM_UP:]
    runtime, bare = median(times["runtime"][WARM_UP:]), median(times["bare"][WARM_UP:])
    return {
        "runtime_seconds": runtime, "bare_seconds": bare, "ratio": runtime / bare,
        "phases": {name: median(each[name] for each in phases) for name in phases[0]},
    }  # fmt: skip


def write_gang(home: Path, strategy: str, steps: int) -> None:
    from gangline.spec.mesh import Mesh
    from gangline.spec.plan import CheckpointPolicy, Plan, Program

    mesh = Mesh(dp_replicate=2) if strategy == "ddp" else Mesh(dp_shard=2)
    plan = Plan(
        run="bench-00000000-aaaaaa", project="bench", name=f"{strategy}-2", run_prefix="runs/bench/0/0",
        program=Program(task="model:ByteGPT"), strategy=strategy, mesh=mesh, deterministic=False, model=MODEL,
        steps=steps + 1, global_batch=16, micro_batch=8, clip_norm=1e6, checkpoint=CheckpointPolicy(every=10**6),
    )  # fmt: skip
    (home / "plan.json").write_bytes(plan.to_json())
    (home / "key").write_bytes(b"benchmark")
    text = b"".join(path.read_bytes() for path in sorted((ROOT / "src").rglob("*.py")))
    (home / "text").write_bytes(text)


def be_rank(rank: int, home: Path, port: int) -> None:
    os.environ.update({
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "0",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GANGLINE_RUN": "bench", "GANGLINE_GANG": "bench",
        "GANGLINE_HOME": str(home), "GANGLINE_PLAN": str(home / "plan.json"), "GANGLINE_CODE": str(home),
        "GANGLINE_STORE": f"file:{home / 'store'}", "GANGLINE_KEY_FILE": str(home / "key"),
        "GANGLINE_GENERATION": "0", "GANGLINE_HEARTBEAT": str(home / f"beat-{rank}"),
    })  # fmt: skip
    sys.path.insert(0, str(ROOT / "examples" / "bytegpt"))
    times = run(home)
    if rank == 0:
        (home / "times.json").write_text(json.dumps({"runtime": times.runtime, "bare": times.bare}))


def run(home: Path) -> Times:
    import torch
    from model import ByteGPT, ByteText

    from gangline.spec.plan import Plan
    from gangline.train import context as contexts
    from gangline.train.environment import RankEnvironment
    from gangline.train.joining import join
    from gangline.train.loop.clock import Clock
    from gangline.train.loop.engine import Course
    from gangline.train.loop.events import EventLog
    from gangline.train.loop.trainer import Trainer

    torch.set_num_threads(1)
    environment = RankEnvironment.read(os.environ)
    plan = Plan.from_json(environment.plan.read_bytes())
    events = EventLog(contexts.events_path(environment), rank=environment.rank, generation=0)
    context = join(environment, plan, Clock("start"), events)
    data = ByteText([str(home / "text")], "train", context=MODEL["context"], holdout=0.1)
    trainer = Trainer(context, ByteGPT(), Course(seed=1, steps=plan.steps, job=0))
    bare, times, began = Bare(plan, data, context), Times(), [time.perf_counter()]

    def after_step(step: int) -> None:
        times.runtime.append(time.perf_counter() - began[0])
        start = time.perf_counter()
        bare.step(step)
        times.bare.append(time.perf_counter() - start)
        context.clock.lap()  # the bare step is no part of the next one's phases
        began[0] = time.perf_counter()

    trainer.train(data, after_step=after_step)
    context.close()
    return times


class Bare:
    """The loop that anybody writes first."""

    def __init__(self, plan, data, context) -> None:
        import torch
        from model import GPT
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.nn.parallel import DistributedDataParallel

        model = GPT(**MODEL)
        if plan.strategy == "ddp":
            model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        else:
            mesh = init_device_mesh("cpu", (2,))
            for layer in model.layers:
                fully_shard(layer, mesh=mesh)
            fully_shard(model, mesh=mesh)
        self.model, self.data, self.rank = model, data, context.rank
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        self.order = torch.randperm(len(data), generator=torch.Generator().manual_seed(1)).tolist()

    def step(self, number: int) -> float:
        import torch
        from torch.nn.functional import cross_entropy
        from torch.utils.data import default_collate

        start = (16 * number + 8 * self.rank) % (len(self.order) - 8)
        batch = default_collate([self.data[index] for index in self.order[start : start + 8]])
        loss = cross_entropy(self.model(batch["tokens"]).flatten(0, 1), batch["targets"].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1e6)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


if __name__ == "__main__":
    sys.exit(main())
