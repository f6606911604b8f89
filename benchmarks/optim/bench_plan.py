"""Time of a plan in pure Python: `python benchmarks/optim/bench_plan.py`.

Seconds of the processor, and of the clock, the least of some tries; goals are 1 s for the 448 matrices of 32B on 256
ranks, and 5 s for 20,160 experts.
"""

import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tools.qwen3 import QWEN3

from gangline.optim.plan.build import build_plan
from gangline.optim.plan.costs import MuonSpec
from gangline.optim.plan.matrix import FragmentSplit, LogicalMatrix, fragments
from gangline.optim.plan.optimizer_plan import OptimPlan

TRIES = 3
EXPERTS = {"w1": (768, 2048), "w2": (2048, 768), "w3": (768, 2048)}


def experts(layers: int = 48, count: int = 140) -> list[LogicalMatrix]:
    """Matrices of a mixture of experts, three each."""
    return [
        matrix
        for layer in range(layers)
        for part, (rows, columns) in EXPERTS.items()
        for matrix in fragments(f"layers.{layer}.{part}", (count, rows, columns), FragmentSplit(kind="stack"))
    ]


def least(plan: Callable[[], OptimPlan]) -> tuple[float, float, OptimPlan]:
    """Seconds of processor and clock, and the plan."""
    found = []
    for _ in range(TRIES):
        clock, processor = time.perf_counter(), time.process_time()
        made = plan()
        found.append((time.process_time() - processor, time.perf_counter() - clock))
    return min(each[0] for each in found), min(each[1] for each in found), made


def main() -> None:
    """Print the table."""
    cases: list[tuple[str, Sequence[LogicalMatrix], int, int, float]] = [
        ("32B, 256 owners", QWEN3["32B"].matrices("split"), 256, 1, 1.0),
        ("32B, 32 owners x 8 hosts", QWEN3["32B"].matrices("split"), 32, 8, 1.0),
        ("20,160 experts, 256 owners", experts(), 256, 1, 5.0),
        ("20,160 experts, 32 owners x 8 hosts", experts(), 32, 8, 5.0),
    ]
    print(f"Python {platform.python_version()}, load average {os.getloadavg()[0]:.1f}")
    print("| plan | matrices | processor s | clock s | goal s | max/mean | bound |")
    print("|--|--|--|--|--|--|--|")
    for name, matrices, ranks, hosts, goal in cases:
        processor, clock, plan = least(lambda m=matrices, r=ranks, h=hosts: build_plan(m, MuonSpec(), ranks=r, hosts=h))
        print(
            f"| {name} | {len(matrices):,} | {processor:.2f} | {clock:.2f} | {goal:.0f} | {plan.ratio:.3f} "
            f"| {plan.bound_ratio:.3f} |"
        )


if __name__ == "__main__":
    main()
