"""Seconds of matrix updates by shape on a device of this machine: the table that `optimizer.cost` of a line reads.

    python -m gangline.measure.matrix_costs < REQUEST.json

takes {"device": "cuda", "optimizer": {"rule": "muon", ...}, "shapes": [[rows, columns, count], ...]}, of which the
optimizer is that of a line, and prints the table as JSON. Matrices are timed one at a time, and as many together as
`batch` and `c_max_bytes` allow. A processor computes on one thread, by the time of that thread.
Cheap shapes come first, and what `MOST_SECONDS` leave no time for is left out: plans scale their model for it.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor

from gangline.measure.device_bench import device_name
from gangline.optim.plan.costs import Shape, cost
from gangline.optim.plan.optimizer_plan import PlanOptions
from gangline.optim.rules.matrix_rule import MatrixRule
from gangline.spec.config.cost_table import FORMAT
from gangline.spec.config.matrix_rule import read_matrix_rule
from gangline.train.parallel.line_optimizer import make_rule

REPEATS = 5
"""Repetitions of each update; their median counts."""
MOST_SECONDS = 60.0


def main() -> int:
    """Measure what the JSON on stdin requests, and print the table."""
    request = json.load(sys.stdin)
    table = read_matrix_rule(request["optimizer"])
    assert table is not None, "who asks has a matrix rule"
    shapes = [(rows, columns) for rows, columns, count in request["shapes"] for _ in range(count)]
    options, device = PlanOptions.of(table.plan), torch.device(request["device"])
    sys.stdout.write(json.dumps(cost_table(make_rule(table), shapes, device, options), indent=1) + "\n")
    return 0


def cost_table(
    rule: MatrixRule, shapes: Sequence[Shape], device: torch.device, options: PlanOptions | None = None
) -> dict[str, Any]:
    """The content of such a file; `rule` may be a class of one's own.

    Args:
        rule: With the options that it will have.
        shapes: Of whole matrices, in any order.
        device: That computes; nothing else should run on it.
        options: Of plans: as many matrices of one shape as these update together are timed together, too.
    """
    options = options or PlanOptions()
    counts = Counter((min(shape), max(shape)) for shape in shapes)
    cases = {(shape, together) for shape, count in counts.items() for together in (1, options.together(shape, count))}
    ordered = sorted(cases, key=lambda case: (cost(rule.spec, *case).value, case))
    rows = list(_rows(rule, ordered, device))
    return {"format": FORMAT, "device": device_name(device), "torch": str(torch.__version__), "rows": rows}


def _rows(rule: MatrixRule, cases: Sequence[tuple[Shape, int]], device: torch.device) -> Iterator[dict[str, Any]]:
    torch.set_num_threads(1)
    start = time.monotonic()
    for shape, together in cases:
        if time.monotonic() - start > MOST_SECONDS:
            return
        step, refresh = update_seconds(rule, shape, device, together=together)
        yield {
            "rule": rule.spec.name, "rows": shape[0], "columns": shape[1], "batch": together, "dtype": rule.spec.dtype,
            "seconds": step, "refresh_seconds": refresh,
        }  # fmt: skip


@torch.no_grad()
def update_seconds(rule: MatrixRule, shape: Shape, device: torch.device, *, together: int = 1) -> tuple[float, float]:
    """Time of an update of `together` matrices without refresh, and what a refresh of their roots or bases adds."""
    gradients = torch.randn(together, *shape, device=device)
    states = [
        {
            name: torch.zeros(size, dtype=getattr(torch, dtype), device=device)
            for name, (size, dtype, where) in rule.spec.state(shape).items()
            if where == "owner"
        }
        for _ in range(together)
    ]

    def update(is_due: bool) -> Tensor:
        return rule.compute(gradients, states, rule.defaults, refresh=[is_due] * together)

    update(is_due=True)  # the first one has a basis to find, and kernels to load
    step = _median_seconds(lambda: update(is_due=False), device)
    if rule.spec.refresh_every == 1:
        return step, 0.0
    return step, max(0.0, _median_seconds(lambda: update(is_due=True), device) - step)


def _median_seconds(call: Callable[[], object], device: torch.device) -> float:
    return median(_seconds(call, device) for _ in range(REPEATS))


def _seconds(call: Callable[[], object], device: torch.device) -> float:
    if device.type == "cpu":
        start = time.thread_time()
        call()
        return time.thread_time() - start
    torch.cuda.synchronize(device)
    start = time.perf_counter()
    call()
    torch.cuda.synchronize(device)
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
