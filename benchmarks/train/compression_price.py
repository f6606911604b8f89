"""What compression and drifting replicas cost in loss and save in bytes, against the same steps without.

    python benchmarks/train/compression_price.py [--steps 120] [--kinds "none;int8"] [--json FILE]

Two gloo ranks train `examples/bytegpt` on the text of this repository, the same samples in the same order under every
kind, the learning rate warming up for a tenth of the steps. The gap is the mean loss above the uncompressed one over
the last quarter of the steps; beside it stands how far another seed lies from the first. Needs root, for a network
namespace of its own.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from plans import ROOT, Found, alone, has_own_network, run

MODEL = {"layers": 2, "width": 128, "context": 64}
BATCH = 16
KINDS = {
    "none": {}, "fp16": {"kind": "fp16"}, "bf16": {"kind": "bf16"}, "int8": {"kind": "int8"},
    "powersgd, rank 2": {"kind": "powersgd", "rank": 2}, "powersgd, rank 8": {"kind": "powersgd", "rank": 8},
    "topk, 1 %": {"kind": "topk", "ratio": 0.01}, "topk, 10 %": {"kind": "topk", "ratio": 0.1},
    "local_sgd, every 10": {"outer_steps": 10},
    "diloco, every 10": {"outer_steps": 10, "outer_lr": 0.7},
    "diloco, every 10, int8": {"outer_steps": 10, "outer_lr": 0.7, "kind": "int8"},
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--json", type=Path, default=ROOT / ".gangline" / "benchmarks" / "compression_price.json")
    parser.add_argument("--kinds", default=";".join(KINDS))
    asked = parser.parse_args()
    if not has_own_network():
        return alone(sys.argv)
    names = dict.fromkeys(["none", *asked.kinds.split(";")])
    plans = {name: plan_of(name, KINDS[name], asked.steps) for name in names}
    found = run(plans, steps=asked.steps, samples=10**6)
    other = run({"none": plans["none"]}, steps=asked.steps, samples=10**6, seed=2)["none"]
    table = prices(found)
    print(f"{'':24}{'loss':>8}{'gap':>9}{'of its bytes':>14}{'ms a step':>11}")
    for name, row in table.items():
        print(f"{name:24}{row['loss']:8.4f}{row['gap']:+9.4f}{row['bytes']:14.4f}{row['seconds'] * 1e3:11.1f}")
    seeds = abs(late(other) - late(found["none"]))
    print(f"two seeds without compression lie {seeds:.4f} apart")
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps({"steps": asked.steps, "kinds": table, "seeds_apart": seeds}, indent=2))
    return 0


def prices(found: dict[str, Found]) -> dict[str, dict[str, float]]:
    whole = found["none"]
    return {
        name: {
            "loss": late(each), "gap": late(each) - late(whole), "bytes": each.bytes_per_step / whole.bytes_per_step,
            "seconds": each.seconds_per_step,
        }
        for name, each in found.items()
    }  # fmt: skip


def late(found: Found) -> float:
    """Mean loss of the last quarter."""
    last = found.losses[-max(1, len(found.losses) // 4) :]
    return sum(last) / len(last)


def plan_of(name: str, options: dict, steps: int):
    from gangline.spec.mesh import Mesh
    from gangline.spec.plan import CheckpointPolicy, Compression, Plan, ProgramSpec, Schedule

    first = name.partition(",")[0]
    strategy = first if first in ("local_sgd", "diloco") else "ddp"
    return Plan(
        run="bench-00000000-aaaaaa", project="bench", name="bench", run_prefix="runs/bench/0/0",
        program=ProgramSpec(task="model:ByteGPT"), strategy=strategy, mesh=Mesh(dp_replicate=2), model=MODEL,
        compression=Compression(**options), schedule=Schedule(warmup_steps=steps // 10), steps=steps,
        micro_batch=BATCH // 2, global_batch=BATCH,
        checkpoint=CheckpointPolicy(every=10**6),
    )  # fmt: skip


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.exit(main())
