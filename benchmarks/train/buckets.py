"""Step times of DDP by the size of its buckets: torch's own, and sizes around it, on two gloo ranks of this machine.

    python benchmarks/train/buckets.py [--delay-ms 1] [--mib 1,4,16,64] [--rounds 3] [--steps 14] [--json FILE]

Needs root, for a network namespace of its own; `--delay-ms` holds every packet of its loopback back for so long (tc).
The sizes of one model take turns, `rounds` times; of each the fastest tenth of all its steps counts, as whatever else
runs here only ever adds. Torch's own buckets come twice: what lies between the two is the noise of the others.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import fmean, median

os.environ["OMP_NUM_THREADS"] = "1"

from plans import ROOT, alone, has_own_network, run  # after the threads are set

MODELS = {
    "13 MB": {"layers": 4, "width": 256, "context": 64},
    "76 MB": {"layers": 6, "width": 512, "context": 64},
    "170 MB": {"layers": 6, "width": 768, "context": 64},
}
"""By the bytes of their gradients."""
FASTEST = 0.10


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--delay-ms", type=float, default=0.0)
    parser.add_argument("--mib", default="1,4,16,64")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--models", default=";".join(MODELS))
    parser.add_argument("--json", type=Path, default=ROOT / ".gangline" / "benchmarks" / "buckets.json")
    asked = parser.parse_args()
    if not has_own_network():
        return alone(sys.argv)
    if asked.delay_ms:
        delay = ["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", f"{asked.delay_ms}ms", "limit", "100000"]
        subprocess.run(delay, check=True)
    sizes = {"torch": None, "torch again": None} | {
        f"{each} MiB": int(float(each) * 2**20) for each in asked.mib.split(",")
    }
    table = {}
    for name in asked.models.split(";"):
        steps = {size: [] for size in sizes}
        for _ in range(asked.rounds):
            plans = {size: plan_of(MODELS[name], count) for size, count in sizes.items()}
            for size, found in run(plans, steps=asked.steps, samples=64).items():
                steps[size] += [each["seconds"] for each in found.steps]
        table[name] = {size: _summary(seconds) for size, seconds in steps.items()}
        print(f"{name}, load {os.getloadavg()[0]:.1f}")
        for size, row in table[name].items():
            more = row["fastest"] / table[name]["torch"]["fastest"] - 1
            print(f"  {size:12} {row['fastest']:8.4f} s {more:+7.1%}   median {row['median']:.4f} s", flush=True)
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps({"delay_ms": asked.delay_ms, "models": table}, indent=2))
    return 0


def _summary(seconds: list[float]) -> dict[str, float]:
    told = sorted(seconds)
    return {"fastest": fmean(told[: max(3, round(FASTEST * len(told)))]), "median": median(told), "steps": len(told)}


def plan_of(model: dict[str, int], bucket_bytes: int | None):
    from gangline.spec.mesh import Mesh
    from gangline.spec.plan import CheckpointPolicy, Plan, ProgramSpec

    return Plan(
        run="bench-00000000-aaaaaa", project="bench", name="bench", run_prefix="runs/bench/0/0",
        program=ProgramSpec(task="model:ByteGPT"), strategy="ddp", mesh=Mesh(dp_replicate=2), model=model, steps=6,
        micro_batch=2, global_batch=4, bucket_bytes=bucket_bytes, checkpoint=CheckpointPolicy(every=10**6),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
