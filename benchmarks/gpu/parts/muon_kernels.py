"""Newton-Schulz on each shape of Qwen3-8B in bfloat16, beside that of torch.optim.Muon.

Bounds: the same products take the time of torch's, and those of the Gram form their share of operations, both with 10 %
for what is between products. Several matrices in one call, products in float16, a compiled call and one that is
replayed as a CUDA graph are reported without a bound: none is known.
"""

import warnings
from collections.abc import Callable
from typing import Any

from figures import Report
from one_rank import apart
from shapes import Shapes

ALLOWED = 1.10
TOGETHER = (2, 8, 32)
MOST_ELEMENTS = 2**30
"""Most elements of all matrices in one call."""


def names(shapes: Shapes) -> tuple[str, ...]:
    pairs = ("standard / torch", "gram / standard")
    return tuple(f"{rows} x {columns}: {pair}" for rows, columns in unique(shapes) for pair in pairs)


def unique(shapes: Shapes) -> list[tuple[int, int]]:
    return sorted(set(shapes.matrices()))


def run(report: Report, shapes: Shapes) -> None:
    for rows, columns in unique(shapes):
        found = apart(milliseconds, shapes, (rows, columns))
        report.tell(f"{rows} x {columns}", found)
        at = f"{rows} x {columns}: "
        report.add(f"{at}standard / torch", found["standard"]["ms"] / found["torch"]["ms"], at_most=ALLOWED,
                   source="the same products")  # fmt: skip
        m, n = sorted((rows, columns))
        share = (8 * m * m * n + 28 * m**3) / (20 * m * m * n + 10 * m**3)
        report.add(f"{at}gram / standard", found["gram"]["ms"] / found["standard"]["ms"], at_most=ALLOWED * share,
                   source="share of operations")  # fmt: skip


def milliseconds(shapes: Shapes, shape: tuple[int, int]) -> dict[str, Any]:
    """Time of a matrix by each kernel, alone and in a batch; rates are in operations of the standard kernel."""
    import torch
    from machine import seconds

    from gangline.optim.plan.costs import MuonSpec
    from gangline.optim.rules.newton_schulz import newton_schulz

    flops = MuonSpec().step_cost(shape).value
    matrix = torch.randn(shape, dtype=torch.bfloat16, device=shapes.device)
    parameter = torch.nn.Parameter(torch.zeros_like(matrix))
    parameter.grad = matrix
    warnings.filterwarnings(
        "ignore", message="Dynamo does not know how to trace"
    )  # how precise products are is no graph
    compiled = torch.compile(newton_schulz)
    calls = {"torch": torch.optim.Muon([parameter]).step}
    for kernel in ("standard", "gram"):
        calls[kernel] = lambda kernel=kernel: newton_schulz(matrix[None], kernel=kernel)
        for count in TOGETHER:
            if count * matrix.numel() <= MOST_ELEMENTS:
                calls[f"{kernel} x {count}"] = lambda kernel=kernel, count=count: newton_schulz(
                    matrix.expand(count, *shape), kernel=kernel
                )
        calls[f"{kernel} float16"] = lambda kernel=kernel: newton_schulz(
            matrix[None], kernel=kernel, dtype=torch.float16
        )
    calls["standard compiled"] = lambda: compiled(matrix[None])
    if shapes.device == "cuda":
        calls["standard graph"] = replayed(lambda: newton_schulz(matrix[None]))
    found = {}
    for name, call in calls.items():
        count = int(name.partition(" x ")[2] or 1)
        each = seconds(call, shapes.device) / count
        found[name] = {"ms": 1000 * each, "teraflops": flops / each / 1e12}
    return found


def replayed(call: Callable[[], Any]) -> Callable[[], None]:
    """The kernels of `call` as one CUDA graph."""
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()  # libraries that are loaded, and kernels that are built, in the first call
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay
