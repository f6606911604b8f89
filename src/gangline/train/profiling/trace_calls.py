"""Calls in a profiler trace, by category, with the time that each spent in itself; time intervals. Pure."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

BINS = 240
Span = tuple[float, float]
"""Start and end, seconds from the beginning of the window."""


def union(spans: Iterable[Span]) -> list[Span]:
    """Sorted and without overlap."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        elif end > start:
            joined.append((start, end))
    return joined


def length(spans: Iterable[Span]) -> float:
    """Sum of the lengths of the spans."""
    return sum(end - start for start, end in spans)


def binned(spans: Iterable[Span], seconds: float) -> tuple[float, ...]:
    """Share of each bin of the window that the spans cover."""
    width = seconds / BINS or 1.0
    bins = [0.0] * BINS
    for start, end in spans:
        first, last = max(0, int(start / width)), min(BINS - 1, int(end / width))
        for place in range(first, last + 1):
            bins[place] += max(0.0, min(end, (place + 1) * width) - max(start, place * width))
    return tuple(round(min(1.0, each / width), 3) for each in bins)


STEP = "step "
"""Annotation of a step: `step 120`."""
MICRO = 1e-6
"""Time unit of a trace, in seconds."""
KERNELS = {"kernel", "gpu_memcpy", "gpu_memset"}
_MATMUL = re.compile(r"(?<![a-z])(add|b|baddb|scaled_|int_)?mm(?![a-z])|mmbackward|linear|conv|gemm|attention|einsum|"
                     r"matmul|cutlass|xmma")  # fmt: skip
_COMPUTE = ("aten::", "autograd::", "torch::autograd::", "void ")
_WIRE = ("c10d", "nccl", "gloo", "all_reduce", "allreduce", "all_gather", "reduce_scatter", "broadcast", "param_comms")
_COPY = ("memcpy", "memset", "aten::copy_", "aten::_to_copy", "aten::to", "aten::clone", "aten::item")


@dataclass(slots=True)
class TraceCall:
    """One call on one thread or stream."""

    name: str
    category: str
    start: float
    end: float
    in_optimizer: bool
    since: float
    """Start of the time that is not booked yet."""
    spans: list[Span] = field(default_factory=list)
    """Time in the call itself, without the calls inside it."""

    @property
    def own(self) -> float:
        """Time in the call itself, without calls inside it."""
        return length(self.spans)

    def own_until(self, moment: float) -> None:
        """Count the time since the last call inside, up to `moment`."""
        moment = min(moment, self.end)
        if moment > self.since:
            self.spans.append((self.since, moment))
        self.since = moment


def category_of(name: str, *, in_optimizer: bool = False) -> str:
    """Category of an operator or a kernel, by its name."""
    lower = name.lower()
    if any(word in lower for word in _WIRE):
        return "communication"
    if any(word in lower for word in _COPY):
        return "copy"
    if in_optimizer or lower.startswith("optimizer."):
        return "optimizer"
    if _MATMUL.search(lower):
        return "matmul"
    named = lower.startswith(_COMPUTE) or "kernel" in lower or "backward" in lower
    return "elementwise" if named else "other"


def is_step(name: str) -> bool:
    """Whether `name` is the annotation of a training step."""
    return name.startswith(STEP) and name.removeprefix(STEP).isdigit()


def calls_of(events: Sequence[Mapping[str, Any]], origin: float, device: str) -> list[TraceCall]:
    """Calls on the device whose time is reported, thread by thread."""
    wanted = KERNELS if device == "cuda" else {"cpu_op", "user_annotation"}
    rows: dict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        if event.get("cat") in wanted and event.get("ph") == "X" and not is_step(str(event.get("name"))):
            rows[event.get("pid"), event.get("tid")].append(event)
    return [call for row in rows.values() for call in _nested(row, origin)]


def _nested(row: list[Mapping[str, Any]], origin: float) -> list[TraceCall]:
    """Calls of one thread: they nest, and time inside an inner call is not the outer call's own."""
    row.sort(key=lambda event: (event["ts"], -event.get("dur", 0)))
    found: list[TraceCall] = []
    inside: list[TraceCall] = []
    for event in row:
        start, seconds = (event["ts"] - origin) * MICRO, event.get("dur", 0) * MICRO
        _leave(inside, until=start)
        name = str(event.get("name"))
        optimizer = name.startswith("Optimizer.") or bool(inside and inside[-1].in_optimizer)
        if inside:
            inside[-1].own_until(start)
        call = TraceCall(
            name=name,
            category=category_of(name, in_optimizer=optimizer),
            start=start,
            end=start + seconds,
            in_optimizer=optimizer,
            since=start,
        )
        found.append(call)
        inside.append(call)
    _leave(inside, until=float("inf"))
    return found


def _leave(inside: list[TraceCall], *, until: float) -> None:
    """End the calls that are over; the enclosing call continues."""
    while inside and inside[-1].end <= until:
        over = inside.pop()
        over.own_until(over.end)
        if inside:
            inside[-1].since = max(inside[-1].since, over.end)
