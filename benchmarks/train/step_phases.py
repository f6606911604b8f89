"""A training step through the runtime, against the same step in a bare torch loop, in one run; and its phases.

    python benchmarks/train/step_phases.py [--blocks 24] [--strategies ddp,fsdp,tp,pp] [--tiny] [--json FILE]

Two gloo ranks train two equal models of `examples/bytegpt` in turn, a block of steps of one after a block of the other.
The bare loop does what any loop does: fetch, forward, backward, clip by norm, AdamW, read the loss. The runtime does
its own besides: global loss, judging, clock, control word, events, heartbeat.

Of each block its fastest step counts, since whatever else runs here only ever adds; a pair of neighbouring blocks gives
one ratio. Bound: the median of these ratios is at most 1.02. Their quartiles, the ratio of the medians of all steps and
that of the CPU seconds of both ranks tell how far to trust it: where the quartiles lie wide apart, measure again.

`--tiny` takes a model of hardly any arithmetic, whose metrics are served: there the runtime's own share of a step is
what is seen. No bound holds for it, and having one head and one layer it has no tensor parallelism and no stages.
"""

import argparse
import json
import multiprocessing
import os
import socket
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median, quantiles

os.environ["OMP_NUM_THREADS"] = "1"
ROOT = Path(__file__).resolve().parents[2]
MODEL = {"layers": 4, "width": 128, "context": 128}
TINY = {"layers": 1, "width": 16, "context": 16}
BOUND = 1.02
TINY_STRATEGIES = ("ddp", "fsdp")
MESHES = {"ddp": ({"dp_replicate": 2}, 8), "fsdp": ({"dp_shard": 2}, 8), "tp": ({"tp": 2}, 16), "pp": ({"pp": 2}, 4)}
"""Degrees and micro-batch; the pipeline runs 1F1B over four micro-batches."""
BLOCK = 5
"""Steps of one side before it is the other's turn."""
WARM_UP = 2
"""Blocks that do not count."""


@dataclass
class Side:
    """Steps of one loop."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    """Processor seconds of all threads of this rank."""
    _began: tuple[float, float] = (0.0, 0.0)

    def begin(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def end(self) -> None:
        wall, cpu = self._began
        self.seconds.append(time.perf_counter() - wall)
        self.cpu_seconds.append(time.process_time() - cpu)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=24)
    parser.add_argument("--strategies", default="ddp,fsdp,tp,pp")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", type=Path, default=ROOT / ".gangline" / "benchmarks" / "step_phases.json")
    asked = parser.parse_args()
    found, bound = {}, None if asked.tiny else BOUND
    for strategy in asked.strategies.split(","):
        if asked.tiny and strategy not in TINY_STRATEGIES:
            print(f"{strategy:6}left out: one head and one layer cannot be divided")
            continue
        found[strategy] = measure(strategy, asked.blocks, tiny=asked.tiny)
        show(strategy, found[strategy])
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps({"bound": bound, "blocks": asked.blocks, "strategies": found}, indent=2))
    return 0 if bound is None or max(each["ratio"] for each in found.values()) <= bound else 1


def show(strategy: str, found: dict) -> None:
    runtime, bare = found["runtime_seconds"] * 1e3, found["bare_seconds"] * 1e3
    low, high = found["quartiles"]
    print(
        f"{strategy:6}ratio {found['ratio']:.3f}, quartiles {low:.3f} to {high:.3f}; fastest steps of a block: ", end=""
    )
    print(f"runtime {runtime:.2f} ms, bare {bare:.2f} ms")
    print(f"      all steps {found['ratio_of_medians']:.3f}, CPU {found['ratio_of_cpu']:.3f}; load {found['load']:.1f}")
    print("      ms: " + "  ".join(f"{name} {seconds * 1e3:.2f}" for name, seconds in found["phases"].items()))


def measure(strategy: str, blocks: int, *, tiny: bool = False) -> dict:
    from torch.distributed import TCPStore

    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        write_gang(home, strategy, steps=blocks * BLOCK, model=TINY if tiny else MODEL)
        context = multiprocessing.get_context("spawn")
        ranks = [context.Process(target=be_rank, args=(rank, home, store.port, tiny)) for rank in (0, 1)]
        for each in ranks:
            each.start()
        for each in ranks:
            each.join()
        if any(each.exitcode for each in ranks):
            raise SystemExit(f"{strategy}: ranks ended with {[each.exitcode for each in ranks]}")
        ranks_times = [json.loads((home / f"times-{rank}.json").read_text()) for rank in (0, 1)]
        lines = map(json.loads, (home / "out" / "ranks" / "0.jsonl").read_text().splitlines())
        phases = [each["phases"] for each in lines if each["event"] == "step"][WARM_UP * BLOCK :]
    return compare(ranks_times) | {"phases": {name: median(each[name] for each in phases) for name in phases[0]}}


def compare(ranks_times: list[dict[str, dict[str, list[float]]]]) -> dict:
    """Wall seconds are rank 0's, for each step ends in both ranks; CPU seconds are of both."""
    runtime, bare = (ranks_times[0][side]["seconds"][WARM_UP * BLOCK :] for side in ("runtime", "bare"))
    pairs = list(zip(fastest(runtime), fastest(bare), strict=True))
    ratios = [ours / theirs for ours, theirs in pairs]
    cpu = {
        side: mean(mean(each[side]["cpu_seconds"][WARM_UP * BLOCK :]) for each in ranks_times)
        for side in ranks_times[0]
    }
    low, middle, high = quantiles(ratios, n=4)
    return {
        "runtime_seconds": median(ours for ours, _ in pairs), "bare_seconds": median(theirs for _, theirs in pairs),
        "ratio": middle, "quartiles": [low, high], "ratio_of_medians": median(runtime) / median(bare),
        "cpu_seconds": cpu, "ratio_of_cpu": cpu["runtime"] / cpu["bare"], "load": os.getloadavg()[0],
    }  # fmt: skip


def fastest(seconds: list[float]) -> list[float]:
    """Fastest step of each block."""
    return [min(seconds[start : start + BLOCK]) for start in range(0, len(seconds), BLOCK)]


def write_gang(home: Path, strategy: str, *, steps: int, model: dict[str, int]) -> None:
    from gangline.spec.mesh import Mesh
    from gangline.spec.plan import CheckpointPolicy, Plan, ProgramSpec

    mesh, micro_batch = MESHES[strategy]
    plan = Plan(
        run="bench-00000000-aaaaaa", project="bench", name=f"{strategy}-2", run_prefix="runs/bench/0/0",
        program=ProgramSpec(task="model:ByteGPT"), strategy=strategy, mesh=Mesh(**mesh), deterministic=False,
        model=model, steps=steps + 1, global_batch=16, micro_batch=micro_batch, clip_norm=1e6,
        checkpoint=CheckpointPolicy(every=10**6),
    )  # fmt: skip
    (home / "plan.json").write_bytes(plan.to_json())
    (home / "key").write_bytes(b"benchmark")
    text = b"".join(path.read_bytes() for path in sorted((ROOT / "src").rglob("*.py")))
    (home / "text").write_bytes(text)


def be_rank(rank: int, home: Path, port: int, tiny: bool) -> None:
    os.environ.update({
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "0",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GANGLINE_RUN": "bench", "GANGLINE_GANG": "bench",
        "GANGLINE_HOME": str(home), "GANGLINE_PLAN": str(home / "plan.json"), "GANGLINE_CODE": str(home),
        "GANGLINE_STORE": f"file:{home / 'store'}", "GANGLINE_KEY_FILE": str(home / "key"),
        "GANGLINE_GENERATION": "0", "GANGLINE_HEARTBEAT": str(home / f"beat-{rank}"),
    })  # fmt: skip
    if tiny:
        os.environ["GANGLINE_METRICS_PORT"] = str(free_port())
    sys.path.insert(0, str(ROOT / "examples" / "bytegpt"))
    times = {name: {"seconds": each.seconds, "cpu_seconds": each.cpu_seconds} for name, each in run(home).items()}
    (home / f"times-{rank}.json").write_text(json.dumps(times))
    os._exit(0)  # as ranks of a gang end: torch's threads may abort an interpreter that winds down


def free_port() -> int:
    """A port for the series of ranks, each of which adds its own number to it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1] - int(os.environ["LOCAL_RANK"])


def run(home: Path) -> dict[str, Side]:
    import torch
    from bare import LOOPS
    from model import ByteGPT, ByteText

    from gangline.keeper.ipc.environment import RankEnvironment
    from gangline.spec.plan import Plan
    from gangline.train.account.clock import PhaseClock
    from gangline.train.account.event_log import EventLog
    from gangline.train.loop.engine import TrainingJob
    from gangline.train.loop.trainer import Trainer
    from gangline.train.rank.joining import join
    from gangline.train.runtime import context as contexts
    from gangline.train.runtime.rendezvous import leave

    torch.set_num_threads(1)
    environment = RankEnvironment.read(os.environ)
    plan = Plan.from_json(environment.plan.read_bytes())
    events = EventLog(contexts.events_path(environment), rank=environment.rank, generation=0)
    context = join(environment, plan, PhaseClock("start"), events)
    data = ByteText([str(home / "text")], "train", context=plan.model["context"], holdout=0.1)
    trainer = Trainer(context, ByteGPT(), TrainingJob(seed=1, steps=plan.steps, number=0))
    bare, runtime_side, bare_side = LOOPS[plan.strategy](plan.model, data, context.rank), Side(), Side()

    def after_step(step: int) -> None:
        runtime_side.end()
        if step % BLOCK == 0:
            for number in range(step - BLOCK, step):
                bare_side.begin()
                bare.step(number)
                bare_side.end()
            context.clock.lap()  # the bare steps are no part of the next one's phases
        runtime_side.begin()

    runtime_side.begin()
    trainer.train(data, after_step=after_step)
    context.close()
    leave()
    return {"runtime": runtime_side, "bare": bare_side}


if __name__ == "__main__":
    sys.exit(main())
