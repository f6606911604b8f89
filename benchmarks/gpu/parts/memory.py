"""Memory of six plans of a model of the 1B class: by the formula and by the memory run, against the allocator's peak.

Each plan is a process of its own. The peak is that of the second step, when the optimizer's state is there. Bounds: the
memory run is within 8 % of it; the formula, which decides what fits, is at most 10 % short, the margin it plans with;
and what a process takes beside tensors is no more than the planner leaves free.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from figures import Report
from one_rank import LARGE, apart, one_rank, plan_of, trained
from shapes import Shapes

MEMORY_RUN, FORMULA = 0.08, 1.10
PLANS: dict[str, dict[str, Any]] = {
    "plain": {},
    "selective": {"activation_checkpointing": "selective"},
    "full": {"activation_checkpointing": "full"},
    "full, loss in 8": {"activation_checkpointing": "full", "loss_chunks": 8},
    "ddp, full": {"strategy": "ddp", "activation_checkpointing": "full"},
    "fsdp, full": {"strategy": "fsdp", "activation_checkpointing": "full"},
}
STEPS = 3


def names(_: Shapes) -> tuple[str, ...]:
    ratios = [f"{plan}: {what}" for plan in PLANS for what in ("memory run off by", "allocator / formula")]
    return (*ratios, "beside tensors")


def run(report: Report, shapes: Shapes) -> None:
    plans = {name: planned(shapes, **what) for name, what in PLANS.items()}
    traced, sized = memory_runs(plans), apart(formulas, shapes, plans)
    most = 0
    for name, plan in plans.items():
        found = apart(measured, plan)
        most = max(most, found["beside_bytes"])
        report.tell(name, found | {"memory_run": traced[name], "formula_bytes": sized[name]})
        if "peak_bytes" in traced[name]:
            off = abs(traced[name]["peak_bytes"] / found["allocated_bytes"] - 1)
            report.add(f"{name}: memory run off by", off, at_most=MEMORY_RUN, source="design of the planner, on a GPU")
        ratio = found["allocated_bytes"] / sized[name]
        report.add(f"{name}: allocator / formula", ratio, at_most=FORMULA, source="memory_margin of the planner")
    reserve = apart(reserve_bytes, shapes)
    report.add("beside tensors", most / 1e9, at_most=reserve / 1e9, unit="GB", source="what the planner leaves free")


def planned(shapes: Shapes, *, strategy: str = "none", **memory: Any):
    from gangline.spec.plan import Memory

    return plan_of(shapes, shapes.billion, steps=STEPS, strategy=strategy, memory=Memory(**memory))


def memory_runs(plans: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Answers of the plan stage's own memory run."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.json" for number in range(len(plans))]
        for path, plan in zip(paths, plans.values(), strict=True):
            path.write_bytes(plan.to_json())
        command = [sys.executable, "-W", "ignore", "-m", "gangline.measure.memory_run", *map(str, paths)]
        said = subprocess.run(command, cwd=LARGE, check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(zip(plans, map(json.loads, said.splitlines()), strict=True))


def formulas(shapes: Shapes, plans: dict[str, Any]) -> dict[str, float]:
    """Bytes of each plan by the planner's formula."""
    from planning_inputs import profile_of

    from gangline.planner.cost.memory import rank_parts
    from gangline.planner.layouts.layout import Layout
    from gangline.planner.settings import StepLoad

    profile, found = profile_of(shapes.billion), {}
    for name, plan in plans.items():
        load = StepLoad(micro_batch=plan.micro_batch, precision=plan.precision, memory=plan.memory)
        found[name] = rank_parts(profile, Layout(plan.strategy, plan.mesh), load).total
    return found


def reserve_bytes(shapes: Shapes) -> float:
    from planning_inputs import inventory

    from gangline.planner.pool import open_pool
    from gangline.spec.config.site import Site

    return open_pool(Site(), inventory(shapes)).reserve_bytes


def measured(plan: Any) -> dict[str, int]:
    """Most bytes of tensors in one process that trains `plan`, and what else it has of the memory they are in."""
    with one_rank(plan) as context:
        scales = OfCuda() if plan.device == "cuda" else OfCpu()
        trained(context, scales.after_step)
    return scales.found


class OfCuda:
    def after_step(self, step: int) -> None:
        import torch

        if step == 1:
            torch.cuda.reset_peak_memory_stats()
        if step == STEPS - 1:
            free, total = torch.cuda.mem_get_info()
            reserved = torch.cuda.memory_reserved()
            self.found = {"allocated_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": reserved,
                          "beside_bytes": total - free - reserved}  # fmt: skip


class OfCpu:
    """Every allocation since it was made, as torch's profiler reports them."""

    def __init__(self) -> None:
        from torch.profiler import ProfilerActivity, profile

        sys.path.insert(0, str(LARGE.parent / "weighed"))
        self._profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True)
        self._profiler.start()

    def after_step(self, step: int) -> None:
        if step != STEPS - 1:
            return
        from allocations import peak_of

        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        self._profiler.stop()
        peak = peak_of(self._profiler.profiler.kineto_results.experimental_event_tree())
        self.found = {"allocated_bytes": peak, "beside_bytes": max(0, resident - peak)}
