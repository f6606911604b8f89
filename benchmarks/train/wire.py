"""What each strategy sends in a step: bytes of all ranks over loopback, as multiples of DDP's in fp32.

    python benchmarks/train/wire.py [--layers 6] [--width 256] [--rows ddp,fsdp] [--json FILE]

Needs root, for a network namespace of its own. Expected are the collectives of gloo: an all-reduce of G bytes on N
ranks sends 2 (N - 1) G, an all-gather (N - 1) G, and its reduce-scatter is an all-reduce.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path

from plans import ROOT, alone, has_own_network, run

CONTEXT = 16
STEPS = 6
RATIO = 0.01
RANK = 2


@dataclass(frozen=True)
class Sizes:
    """Shapes of a model's parameters, and the share of them outside its blocks."""

    shapes: tuple[tuple[int, ...], ...]
    root: float

    @property
    def total(self) -> int:
        return sum(map(numel, self.shapes))


@dataclass(frozen=True)
class Row:
    strategy: str
    mesh: dict[str, int]
    expected: float | Callable[[Sizes], float]
    """Bytes of a step, as a multiple of DDP's on as many ranks."""
    compression: dict | None = None
    precision: str = "fp32"
    micro_batches: int = 1


def numel(shape: tuple[int, ...]) -> int:
    count = 1
    for each in shape:
        count *= each
    return count


def thin(sizes: Sizes) -> float:
    """PowerSGD: two factors instead of a matrix, where they are less than half of it."""
    sent = 0
    for shape in sizes.shapes:
        factors = RANK * sum(shape) if len(shape) > 1 else numel(shape)
        sent += factors if 2 * factors < numel(shape) else numel(shape)
    return sent / sizes.total


def bytewise(sizes: Sizes) -> float:
    """int8: groups of 256 values and a scale, twice half an all-reduce."""
    return sum(ceil(numel(shape) / 256) * (256 + 4) for shape in sizes.shapes) / (4 * sizes.total)


def sparse(sizes: Sizes) -> float:
    """top-k: value and place of each chosen entry, from every rank to every other; on two ranks."""
    return 2 * sum(ceil(RATIO * numel(shape)) for shape in sizes.shapes) / sizes.total


TWO, FOUR = {"dp_replicate": 2}, {"dp_replicate": 4}
SHARDS, SHARDS4, GRID = {"dp_shard": 2}, {"dp_shard": 4}, {"dp_replicate": 2, "dp_shard": 2}
ROWS = {
    "ddp": Row("ddp", TWO, 1.0),
    "ddp-4": Row("ddp", FOUR, 1.0),
    "zero1": Row("zero1", TWO, 1.5),
    "zero1-4": Row("zero1", FOUR, 1.5),
    "zero2": Row("zero2", SHARDS, 1.5),
    "zero2-4": Row("zero2", SHARDS4, 1.5),
    "fsdp": Row("fsdp", SHARDS, lambda s: 2.0 - 0.5 * s.root),
    "fsdp-4": Row("fsdp", SHARDS4, lambda s: 2.0 - 0.5 * s.root),
    "fsdp, computes in bf16": Row("fsdp", SHARDS, lambda s: 1.5 - 0.25 * s.root, precision="bf16"),
    "fsdp, all in bf16": Row("fsdp", SHARDS, lambda s: 1.0 - 0.25 * s.root, {"kind": "bf16"}, "bf16"),
    "hsdp-2x2": Row("hsdp", GRID, lambda s: (10 - 2 * s.root) / 6),
    "hsdp-2x2, int8": Row("hsdp", GRID, lambda s: (8 - 2 * s.root + 2 * bytewise(s)) / 6, {"kind": "int8"}),
    "ddp, fp16": Row("ddp", TWO, 0.5, {"kind": "fp16"}),
    "ddp, bf16": Row("ddp", TWO, 0.5, {"kind": "bf16"}),
    "ddp, powersgd": Row("ddp", TWO, thin, {"kind": "powersgd", "rank": RANK}),
    "ddp, topk": Row("ddp", TWO, sparse, {"kind": "topk", "ratio": RATIO}),
    "ddp, int8": Row("ddp", TWO, bytewise, {"kind": "int8"}),
    "ddp-4, int8": Row("ddp", FOUR, bytewise, {"kind": "int8"}),
    "ddp, 4 micro-batches": Row("ddp", TWO, 1.0, micro_batches=4),
    "fsdp, 4 micro-batches": Row("fsdp", SHARDS, lambda s: 1.0 + 4 * (1.0 - 0.5 * s.root), micro_batches=4),
    "local_sgd, every 3": Row("local_sgd", TWO, 1 / 3, {"outer_steps": 3}),
    "diloco, every 3, int8": Row(
        "diloco", TWO, lambda s: bytewise(s) / 3, {"outer_steps": 3, "outer_lr": 0.7, "kind": "int8"}
    ),
}  # fmt: skip
"""Rows of four ranks are measured against DDP on four."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rows", default=";".join(ROWS))
    parser.add_argument("--json", type=Path, default=ROOT / ".gangline" / "benchmarks" / "wire.json")
    asked = parser.parse_args()
    if not has_own_network():
        return alone(sys.argv)
    names = asked.rows.split(";")
    table = measure(names, {"layers": asked.layers, "width": asked.width, "context": CONTEXT})
    print(f"{'':24}{'ranks':>6}{'MB a step':>11}{'of DDP':>9}{'expected':>10}")
    for name, row in table.items():
        print(f"{name:24}{row['ranks']:6}{row['bytes'] / 1e6:11.2f}{row['ratio']:9.4f}{row['expected']:10.4f}")
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(table, indent=2))
    return 0


def measure(names: list[str], model: dict[str, int]) -> dict[str, dict]:
    plans = {name: plan_of(ROWS[name], model) for name in dict.fromkeys(["ddp", "ddp-4", *names])}
    if all(plans[name].world_size == 2 for name in names):
        del plans["ddp-4"]
    found, sizes = run(plans, steps=STEPS + 3, samples=64), sizes_of(model)
    table = {}
    for name in names:
        ranks = plans[name].world_size
        base = found["ddp" if ranks == 2 else "ddp-4"].bytes_per_step
        sent = found[name].bytes_per_step
        known = ROWS[name].expected
        expected = known(sizes) if callable(known) else known
        table[name] = {
            "ranks": ranks,
            "bytes": sent,
            "ratio": sent / base,
            "expected": expected,
            "sizes": asdict(sizes),
        }
    return table


def plan_of(row: Row, model: dict[str, int]):
    from gangline.spec.mesh import Mesh
    from gangline.spec.plan import CheckpointPolicy, Compression, Plan, ProgramSpec

    mesh = Mesh(**row.mesh)
    return Plan(
        run="bench-00000000-aaaaaa", project="bench", name="bench", run_prefix="runs/bench/0/0",
        program=ProgramSpec(task="model:ByteGPT"), strategy=row.strategy, mesh=mesh, model=model,
        precision=row.precision, compression=Compression(**row.compression or {}), steps=STEPS, micro_batch=1,
        global_batch=mesh.data_parallel * row.micro_batches, checkpoint=CheckpointPolicy(every=10**6),
    )  # fmt: skip


def sizes_of(model: dict[str, int]) -> Sizes:
    sys.path.insert(0, str(ROOT / "examples" / "bytegpt"))
    from model import GPT

    named = {name: tuple(each.shape) for name, each in GPT(**model).named_parameters()}
    outside = sum(numel(shape) for name, shape in named.items() if not name.startswith("layers."))
    return Sizes(tuple(named.values()), outside / sum(map(numel, named.values())))


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.exit(main())
