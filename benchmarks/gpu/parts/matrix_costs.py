"""Seconds of Muon's updates by shape, and the work of an owner by them: matrices of Qwen3-32B, 8 hosts, 32 owners.

Each shape is timed alone; the table of them is in `seen`, as `optimizer.cost` of a line reads it. Bound: the updates
of the busiest owner, one after another, take what the table says, to 10 %. What plans balance by assumed and by
measured seconds is shown.
"""

from typing import Any

from figures import Report
from one_rank import apart
from shapes import Shapes

WITHIN = 0.10
KERNELS = ("standard", "gram")
HOSTS, OWNERS = 8, 32


def names(_: Shapes) -> tuple[str, ...]:
    return tuple(f"{kernel}: owner off by" for kernel in KERNELS)


def run(report: Report, shapes: Shapes) -> None:
    tables = []
    for kernel in KERNELS:
        found = apart(measured, shapes, kernel)
        tables.append(found.pop("table"))
        report.tell(kernel, found)
        off = abs(found["seconds"] / found["planned_seconds"] - 1)
        report.add(f"{kernel}: owner off by", off, at_most=WITHIN, source="the table of this run")
    report.tell("costs", {**tables[0], "rows": [row for table in tables for row in table["rows"]]})


def measured(shapes: Shapes, kernel: str) -> dict[str, Any]:
    """Rows of the table, and the busiest owner's seconds by them and as they are."""
    import torch
    from machine import seconds
    from tools.qwen3 import QWEN3

    from gangline.measure.matrix_costs import cost_table
    from gangline.optim.plan.build import build_plan
    from gangline.optim.plan.costs import DeviceCurve
    from gangline.optim.plan.matrix import LogicalMatrix
    from gangline.optim.plan.optimizer_plan import PlanOptions
    from gangline.optim.plan.work import device_curve
    from gangline.optim.rules.muon import Muon

    part, rule = shapes.matrix_part, Muon(kernel=kernel)  # type: ignore[arg-type]
    matrices = [
        LogicalMatrix(fqn=each.fqn, shape=(each.shape[0] // part, each.shape[1] // part))
        for each in QWEN3["32B"].matrices("split")
    ]
    tensors = {
        shape: torch.randn(1, *shape, device=shapes.device) for shape in sorted({each.shape for each in matrices})
    }

    def update(shape: tuple[int, int]) -> None:
        rule.compute(tensors[shape], [{}], rule.defaults, refresh=[False])

    table = cost_table(rule, list(tensors), torch.device(shapes.device))
    curves = {"assumed": DeviceCurve(), "measured": device_curve("cuda", table)}
    plans = {
        name: build_plan(matrices, rule.spec, ranks=OWNERS, hosts=HOSTS, options=PlanOptions(device=curve))
        for name, curve in curves.items()
    }
    plan = plans["measured"]
    busiest = max(range(OWNERS), key=lambda owner: plan.loads[owner])
    work = [each.matrix.shape for each in plan.matrices if each.owner == busiest]
    return {
        "updates": len(work), "planned_seconds": plan.loads[busiest],
        "seconds": seconds(lambda: [update(shape) for shape in work], shapes.device),
        "largest load over mean": {name: each.ratio for name, each in plans.items()},
        "table": table,
    }  # fmt: skip
