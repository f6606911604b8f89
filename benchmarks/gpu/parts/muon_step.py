"""A step of Muon on all matrices of Qwen3-8B, parameters and gradients in bfloat16, with torch.optim.Muon and, where
the package `dion` can be imported, that of microsoft/dion.

Bounds: two thirds of torch's time, which the design wants of the faster kernel; and torch's peak of memory, with the
momentum in float32 in place of bfloat16 and what one matrix needs while it is computed.
"""

from importlib.util import find_spec
from typing import Any

from figures import Report
from one_rank import apart, settle
from shapes import Shapes

SHARE = 2 / 3
WORKSPACE = 8
"""Float32 copies of the largest matrix: gathered, scaled, rounded, products, update."""


def names(shapes: Shapes) -> tuple[str, ...]:  # noqa: ARG001  the same for all
    return "fastest / torch", "memory / allowed"


def run(report: Report, shapes: Shapes) -> None:
    sides = shapes.matrices()
    found = {name: apart(measured, shapes, sides, name) for name in ("torch", "standard", "gram")}
    if find_spec("dion"):
        found["dion"] = apart(measured, shapes, sides, "dion")
    report.tell("steps", found)
    fastest = min(found[name]["seconds"] for name in ("standard", "gram"))
    report.add("fastest / torch", fastest / found["torch"]["seconds"], at_most=SHARE, source="the design's target")
    elements = sum(rows * columns for rows, columns in sides)
    largest = max(rows * columns for rows, columns in sides)
    allowed = found["torch"]["peak_bytes"] + 2 * elements + 4 * WORKSPACE * largest
    report.add("memory / allowed", found["standard"]["peak_bytes"] / allowed, at_most=1.0, source="torch's own peak")


def measured(shapes: Shapes, sides: list[tuple[int, int]], name: str) -> dict[str, Any]:
    """Seconds of a step and the peak of memory; on a CPU what the process had at most."""
    import resource

    import torch
    from machine import seconds

    from gangline.optim.matrix_optimizer import MatrixOptimizer
    from gangline.optim.rules.muon import Muon

    parameters = [
        torch.nn.Parameter(torch.randn(each, dtype=torch.bfloat16, device=shapes.device) / each[1]) for each in sides
    ]
    for each in parameters:
        each.grad = torch.randn_like(each)
    optimizer: Any
    if name == "torch":
        optimizer = torch.optim.Muon(parameters)
    elif name == "dion":
        import dion  # type: ignore[import-not-found]  # in no lock: put on PYTHONPATH to compare

        optimizer = dion.Muon(parameters, use_triton=shapes.device == "cuda")
    else:
        group = {"params": parameters, "names": [f"{at}" for at in range(len(sides))], "kind": "matrix"}
        optimizer = MatrixOptimizer([group], rule=Muon(kernel=name))  # type: ignore[arg-type]
    settle(shapes.device)
    took = seconds(optimizer.step, shapes.device)
    on_gpu = shapes.device == "cuda"
    peak = torch.cuda.max_memory_allocated() if on_gpu else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": took, "peak_bytes": peak}
