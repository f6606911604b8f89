"""Summary of a profiler trace: time by category, memory over time, longest operators. Pure: no torch, no files."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from gangline.spec.gang.profiling import CATEGORIES, Operator, ProfiledStep, ProfileRequest, ProfileSummary

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
    calls: list[TraceCall] = []
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
        calls.append(call)
        inside.append(call)
    _leave(inside, until=float("inf"))
    return calls


def _leave(inside: list[TraceCall], *, until: float) -> None:
    """End the calls that are over; the enclosing call continues."""
    while inside and inside[-1].end <= until:
        over = inside.pop()
        over.own_until(over.end)
        if inside:
            inside[-1].since = max(inside[-1].since, over.end)


MEMORY_POINTS = 240


def allocated(events: Sequence[Mapping[str, Any]], origin: float, device: str) -> list[tuple[float, float]]:
    """(seconds, bytes) allocated on the device whose time is reported."""
    kind = 1 if device == "cuda" else 0
    found = []
    for event in events:
        arguments = event.get("args") or {}
        if event.get("name") == "[memory]" and arguments.get("Device Type") == kind and "Total Allocated" in arguments:
            found.append(((event["ts"] - origin) * MICRO, float(arguments["Total Allocated"])))
    return sorted(found)


def peaks_by_phase(memory: Sequence[tuple[float, float]], phases: Sequence[tuple[float, str]]) -> dict[str, int]:
    """Peak bytes of each phase, the largest first; memory before the first phase is not counted."""
    begins = [when for when, _ in phases]
    peaks: dict[str, int] = {}
    for when, size in memory:
        place = bisect_right(begins, when) - 1
        if place >= 0:
            name = phases[place][1]
            peaks[name] = max(peaks.get(name, 0), int(size))
    return dict(sorted(peaks.items(), key=lambda item: -item[1]))


def thinned(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """The highest point of each of `MEMORY_POINTS` parts, so that no peak is lost."""
    count = min(MEMORY_POINTS, len(points))
    edges = [len(points) * i // count for i in range(count + 1)] if count else []
    shares = (points[a:b] for a, b in pairwise(edges))
    return tuple((round(when, 6), size) for when, size in (max(share, key=lambda p: p[1]) for share in shares))


TOP = 25


def summarise(
    events: Iterable[Mapping[str, Any]], request: ProfileRequest, *, rank: int, node: str = "",
    phases: Sequence[tuple[float, str]] = (),
) -> ProfileSummary:  # fmt: skip
    """Summarize the events of a Chrome trace over the window of their steps.

    Args:
        events: As torch's profiler writes them.
        request: The request that is answered.
        rank: Rank of the trace.
        node: Its node.
        phases: (seconds from the first step, phase that begins), by the rank's clock.
    """
    listed = [event for event in events if isinstance(event.get("ts"), int | float)]
    steps, origin, seconds = _steps(listed)
    device: Literal["cpu", "cuda"] = "cuda" if any(event.get("cat") in KERNELS for event in listed) else "cpu"
    calls = calls_of(listed, origin, device)
    lanes = {name: union(span for call in calls if call.category == name for span in call.spans) for name in CATEGORIES}
    shares, memory = _shares(lanes, seconds), allocated(listed, origin, device)
    own = {name: sum(call.own for call in calls if call.category == name) for name in CATEGORIES}
    own["idle"] = shares.idle * seconds
    return ProfileSummary(
        rank=rank, node=node, first=request.first, last=request.last, word=request.word, device=device,
        seconds=seconds, steps=steps,
        categories={name: own[name] for name in CATEGORIES if own[name] > 0},
        busy_share=shares.busy, exposed_share=shares.exposed, hidden_share=shares.hidden, idle_share=shares.idle,
        top=_top(calls), lanes={name: binned(spans, seconds) for name, spans in lanes.items() if spans},
        memory=thinned(memory), peak_bytes=int(max((size for _, size in memory), default=0.0)),
        phases=tuple((round(when, 6), name) for when, name in phases), peak_by_phase=peaks_by_phase(memory, phases),
    )  # fmt: skip


class _Shares(NamedTuple):
    """Shares of a window."""

    busy: float
    """A call computes or copies."""
    exposed: float
    """Only communication."""
    hidden: float
    """Communication that overlaps other work."""
    idle: float


def _shares(lanes: Mapping[str, Sequence[Span]], seconds: float) -> _Shares:
    wire = lanes["communication"]
    busy = union([span for name, spans in lanes.items() if name != "communication" for span in spans])
    working, covered, whole = length(busy), length(union([*busy, *wire])), seconds or 1.0
    exposed = max(0.0, covered - working)
    return _Shares(
        busy=min(1.0, working / whole), exposed=exposed / whole,
        hidden=max(0.0, length(wire) - exposed) / whole, idle=max(0.0, seconds - covered) / whole,
    )  # fmt: skip


def _steps(events: Sequence[Mapping[str, Any]]) -> tuple[tuple[ProfiledStep, ...], float, float]:
    """Steps, start of the window in the trace's time, and its length."""
    own = {
        int(event["name"].removeprefix(STEP)): event
        for event in events
        if event.get("cat") == "user_annotation" and is_step(str(event.get("name")))
    }
    spans = [(event["ts"], event["ts"] + event.get("dur", 0)) for event in (own.values() or events)]
    origin = min((start for start, _ in spans), default=0.0)
    end = max((end for _, end in spans), default=0.0)
    steps = tuple(
        ProfiledStep(step=step, start=(event["ts"] - origin) * MICRO, seconds=event.get("dur", 0) * MICRO)
        for step, event in sorted(own.items())
    )
    return steps, origin, (end - origin) * MICRO


def _top(calls: Iterable[TraceCall]) -> tuple[Operator, ...]:
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for call in calls:
        row = sums[call.name, call.category]
        row[0], row[1], row[2] = row[0] + 1, row[1] + call.own, row[2] + call.end - call.start
    rows = sorted(sums.items(), key=lambda item: (-item[1][1], item[0]))[:TOP]
    return tuple(
        Operator(name=name[:200], category=category, count=int(count), self_seconds=own, total_seconds=total)
        for (name, category), (count, own, total) in rows
    )
