"""What this device does by itself, on random values: the ceilings that figures are read against."""

import time
from collections.abc import Callable
from statistics import median

import torch
from one_rank import settle
from shapes import Shapes

REPEATS = 10


def product_rate(shapes: Shapes) -> float:
    """Operations a second of one large product in the precision of the session."""
    side = shapes.product
    left, right = (_random(shapes, side, side) for _ in range(2))
    return 2 * side**3 / seconds(lambda: left @ right, shapes.device)


def stream_rate(shapes: Shapes) -> float:
    """Bytes a second, read and written, of a sum in place of two tensors, of which one is written."""
    some, other = (_random(shapes, shapes.stream_bytes // 2) for _ in range(2))
    return 3 * some.nbytes / seconds(lambda: some.add_(other), shapes.device)


def to_host_rate(shapes: Shapes, size_bytes: int) -> float:
    """Bytes a second from the device into host memory in use, pinned where that has a meaning."""
    source = torch.ones(size_bytes // 4, device=shapes.device)
    target = torch.zeros(size_bytes // 4, pin_memory=shapes.device == "cuda")
    return source.nbytes / seconds(lambda: target.copy_(source, non_blocking=True), shapes.device)


def ceiling(shapes: Shapes, name: str) -> tuple[float, str]:
    """Operations a second of the device called `name`, and who says so: its maker, else a large product here."""
    from gangline.planner.known_gpus import peak_of

    peak = peak_of(name)
    if peak is not None and shapes.precision in peak.flops_per_second:
        return peak.flops_per_second[shapes.precision], peak.source
    return product_rate(shapes), "a large product in this run"


def seconds(call: Callable[[], object], device: str) -> float:
    """Median of calls, after two to warm up."""
    took = []
    for number in range(REPEATS + 2):
        settle(device)
        start = time.perf_counter()
        call()
        settle(device)
        took += [time.perf_counter() - start] if number > 1 else []
    return median(took)


def _random(shapes: Shapes, *size: int) -> torch.Tensor:
    return torch.randn(size, dtype=torch.bfloat16, device=shapes.device)
