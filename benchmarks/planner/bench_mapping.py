"""Mapping of stages and replicas to groups: bytes over the least there are, and processor time of one core.

    python benchmarks/planner/bench_mapping.py [--cases 40] [--cells 24] [--seed 1] [--json FILE]

The least is proved by an integer program (scipy) where that ends within 20 s; without scipy only times are measured.
Bounds: 1.05 on average, 1.25 at worst; 100 ms for 2,048 servers in groups of unlike sizes.
"""

import argparse
import json
import sys
import time
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import mean, quantiles

from gangline.fabric.placement.mapping import EdgeBytes, bytes_between
from gangline.fabric.placement.tiles import map_cells

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

MEAN_BOUND, WORST_BOUND, SECONDS_BOUND = 1.05, 1.25, 0.100


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--cells", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, default=ROOT / ".gangline" / "benchmarks" / "mapping.json")
    asked = parser.parse_args()
    ratios, unproved = over_the_least(Random(asked.seed), asked.cases, asked.cells)
    if ratios:
        print(
            f"{len(ratios)} cases of up to {asked.cells} cells: {mean(ratios):.4f} on average, {max(ratios):.3f} worst"
        )
        print(f"{unproved} cases without a proof of the least within the time")
    seconds = {servers: times(Random(asked.seed), servers, asked.rounds) for servers in (2048, 20_480)}
    for servers, found in seconds.items():
        print(f"{servers:,} servers: {1e3 * mean(found):.0f} ms on average, {1e3 * quantile(found):.0f} ms p99")
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    document = {"seed": asked.seed, "cells": asked.cells, "ratios": ratios, "unproved": unproved, "seconds": seconds}
    asked.json.write_text(json.dumps(document, indent=2))
    close = not ratios or (mean(ratios) <= MEAN_BOUND and max(ratios) <= WORST_BOUND)
    return 0 if close and quantile(seconds[2048]) <= SECONDS_BOUND else 1


def over_the_least(random: Random, cases: int, cells: int) -> tuple[list[float], int]:
    """Our bytes over the least of random cases, and how many had no proof; none without scipy."""
    try:
        from tests.oracles.cell_mapping import least_bytes
    except ImportError:
        print("scipy is not here: pip install scipy to compare with the least")
        return [], 0
    shapes = [(d, s) for d in range(2, 9) for s in range(2, 9) if d * s <= cells]
    ratios, unproved = [], 0
    for _ in range(cases):
        replicas, stages = random.choice(shapes)
        sizes = split(random, replicas * stages, random.randint(2, min(5, replicas * stages)))
        edges = EdgeBytes(data=10 ** random.uniform(-1.5, 1.5), stage=1.0)
        least = least_bytes(sizes, replicas, stages, edges, seconds=20)
        ours = bytes_between(map_cells(named(sizes), replicas=replicas, stages=stages, edges=edges), edges)
        if least is None:
            unproved += 1
        else:
            ratios.append(ours / least if least > 1e-9 else 1.0 if ours < 1e-9 else float("inf"))
    return ratios, unproved


def times(random: Random, servers: int, rounds: int) -> list[float]:
    """Seconds of mappings over 32 groups for each 2,048 servers, of unlike sizes."""
    found = []
    for _ in range(rounds):
        stages = random.choice([4, 8, 16, 32])
        sizes, replicas = split(random, servers, servers // 64), servers // stages
        edges = EdgeBytes(
            data=2 * (replicas - 1) / replicas * 2 * 175e9 / (8 * stages),  # a ring all-reduce of bf16 gradients
            stage=2 * 12 * 2048 * 12_288 * 2 / 8,  # activations of 12 sequences, and their gradients
        )
        began = time.process_time()
        map_cells(named(sizes), replicas=replicas, stages=stages, edges=edges)
        found.append(time.process_time() - began)
    return found


def split(random: Random, total: int, parts: int) -> list[int]:
    cuts = sorted(random.sample(range(1, total), parts - 1))
    return [high - low for low, high in pairwise([0, *cuts, total])]


def named(sizes: list[int]) -> dict[str, int]:
    return {f"g{at:03}": size for at, size in enumerate(sizes)}


def quantile(values: list[float]) -> float:
    return quantiles(values, n=100, method="inclusive")[-1] if len(values) > 1 else values[0]


if __name__ == "__main__":
    sys.exit(main())
