"""From the events of a trace to a summary that fits a page. Pure: no torch, no files."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from gangline.spec.profiling import CATEGORIES, Operator, ProfiledStep, ProfileRequest, ProfileSummary

STEP = "step "
"""Our own annotation of a step: `step 120`."""
BINS = 240
MEMORY_POINTS = 240
TOP = 25
_MICRO = 1e-6
_KERNELS = {"kernel", "gpu_memcpy", "gpu_memset"}
_MATMUL = re.compile(r"(?<![a-z])(add|b|baddb|scaled_|int_)?mm(?![a-z])|mmbackward|linear|conv|gemm|attention|einsum|"
                     r"matmul|cutlass|xmma")  # fmt: skip
_COMPUTE = ("aten::", "autograd::", "torch::autograd::", "void ")
_WIRE = ("c10d", "nccl", "gloo", "all_reduce", "allreduce", "all_gather", "reduce_scatter", "broadcast", "param_comms")
_COPY = ("memcpy", "memset", "aten::copy_", "aten::_to_copy", "aten::to", "aten::clone", "aten::item")
Span = tuple[float, float]
"""Start and end, seconds from the beginning of the window."""


@dataclass(slots=True)
class _Mark:
    """One call on one thread or stream."""

    name: str
    category: str
    start: float
    end: float
    in_optimizer: bool
    since: float
    """From when on its own time counts again."""
    spans: list[Span] = field(default_factory=list)
    """Without what it called."""

    @property
    def own(self) -> float:
        return _length(self.spans)

    def own_until(self, moment: float) -> None:
        moment = min(moment, self.end)
        if moment > self.since:
            self.spans.append((self.since, moment))
        self.since = moment


def summarise(
    events: Iterable[Mapping[str, Any]], request: ProfileRequest, *, rank: int, node: str = "",
    phases: Sequence[tuple[float, str]] = (),
) -> ProfileSummary:  # fmt: skip
    """What the events of a Chrome trace say about the window of their steps.

    Args:
        events: As torch's profiler writes them.
        request: That is answered.
        rank: Whose trace it is.
        node: Where it ran.
        phases: (seconds from the first step, phase that begins there), by the rank's own clock.
    """
    listed = [event for event in events if isinstance(event.get("ts"), int | float)]
    steps, origin, seconds = _steps(listed)
    device: Literal["cpu", "cuda"] = "cuda" if any(event.get("cat") in _KERNELS for event in listed) else "cpu"
    marks = _marks(listed, origin, device)
    lanes = {
        name: _union(span for mark in marks if mark.category == name for span in mark.spans) for name in CATEGORIES
    }
    shares, memory = _shares(lanes, seconds), _memory(listed, origin, device)
    own = {name: sum(mark.own for mark in marks if mark.category == name) for name in CATEGORIES}
    own["idle"] = shares.idle * seconds
    return ProfileSummary(
        rank=rank, node=node, first=request.first, last=request.last, word=request.word, device=device,
        seconds=seconds, steps=steps,
        categories={name: own[name] for name in CATEGORIES if own[name] > 0},
        busy_share=shares.busy, exposed_share=shares.exposed, hidden_share=shares.hidden, idle_share=shares.idle,
        top=_top(marks), lanes={name: _binned(spans, seconds) for name, spans in lanes.items() if spans},
        memory=_thin(memory), peak_bytes=int(max((size for _, size in memory), default=0.0)),
        phases=tuple((round(when, 6), name) for when, name in phases), peak_by_phase=_by_phase(memory, phases),
    )  # fmt: skip


class _Shares(NamedTuple):
    """Of a window."""

    busy: float
    """Something computes or copies."""
    exposed: float
    """Communication alone goes on."""
    hidden: float
    """Communication goes on beside the rest."""
    idle: float


def _shares(lanes: Mapping[str, Sequence[Span]], seconds: float) -> _Shares:
    wire = lanes["communication"]
    busy = _union([span for name, spans in lanes.items() if name != "communication" for span in spans])
    working, covered, whole = _length(busy), _length(_union([*busy, *wire])), seconds or 1.0
    exposed = max(0.0, covered - working)
    return _Shares(
        busy=min(1.0, working / whole), exposed=exposed / whole,
        hidden=max(0.0, _length(wire) - exposed) / whole, idle=max(0.0, seconds - covered) / whole,
    )  # fmt: skip


def category_of(name: str, *, in_optimizer: bool = False) -> str:
    """Of an operator or a kernel, by its name."""
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


def _steps(events: Sequence[Mapping[str, Any]]) -> tuple[tuple[ProfiledStep, ...], float, float]:
    """Steps, the trace's own time of the beginning, and the length of the window."""
    own = {
        int(event["name"].removeprefix(STEP)): event
        for event in events
        if event.get("cat") == "user_annotation" and _is_step(str(event.get("name")))
    }
    spans = [(event["ts"], event["ts"] + event.get("dur", 0)) for event in (own.values() or events)]
    origin = min((start for start, _ in spans), default=0.0)
    end = max((end for _, end in spans), default=0.0)
    steps = tuple(
        ProfiledStep(step=step, start=(event["ts"] - origin) * _MICRO, seconds=event.get("dur", 0) * _MICRO)
        for step, event in sorted(own.items())
    )
    return steps, origin, (end - origin) * _MICRO


def _is_step(name: str) -> bool:
    return name.startswith(STEP) and name.removeprefix(STEP).isdigit()


def _marks(events: Sequence[Mapping[str, Any]], origin: float, device: str) -> list[_Mark]:
    """Operators of the device whose time is told, thread by thread."""
    wanted = _KERNELS if device == "cuda" else {"cpu_op", "user_annotation"}
    rows: dict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        if event.get("cat") in wanted and event.get("ph") == "X" and not _is_step(str(event.get("name"))):
            rows[event.get("pid"), event.get("tid")].append(event)
    return [mark for row in rows.values() for mark in _nested(row, origin)]


def _nested(row: list[Mapping[str, Any]], origin: float) -> list[_Mark]:
    """One thread: calls nest, and what happens inside a call is not the call's own."""
    row.sort(key=lambda event: (event["ts"], -event.get("dur", 0)))
    found: list[_Mark] = []
    inside: list[_Mark] = []
    for event in row:
        start, seconds = (event["ts"] - origin) * _MICRO, event.get("dur", 0) * _MICRO
        _leave(inside, until=start)
        name = str(event.get("name"))
        optimizer = name.startswith("Optimizer.") or bool(inside and inside[-1].in_optimizer)
        if inside:
            inside[-1].own_until(start)
        mark = _Mark(
            name=name,
            category=category_of(name, in_optimizer=optimizer),
            start=start,
            end=start + seconds,
            in_optimizer=optimizer,
            since=start,
        )
        found.append(mark)
        inside.append(mark)
    _leave(inside, until=float("inf"))
    return found


def _leave(inside: list[_Mark], *, until: float) -> None:
    """End the calls that are over; the one around goes on with its own."""
    while inside and inside[-1].end <= until:
        over = inside.pop()
        over.own_until(over.end)
        if inside:
            inside[-1].since = max(inside[-1].since, over.end)


def _top(marks: Iterable[_Mark]) -> tuple[Operator, ...]:
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for mark in marks:
        row = sums[mark.name, mark.category]
        row[0], row[1], row[2] = row[0] + 1, row[1] + mark.own, row[2] + mark.end - mark.start
    rows = sorted(sums.items(), key=lambda item: (-item[1][1], item[0]))[:TOP]
    return tuple(
        Operator(name=name[:200], category=category, count=int(count), self_seconds=own, total_seconds=total)
        for (name, category), (count, own, total) in rows
    )


def _union(spans: Iterable[Span]) -> list[Span]:
    """Sorted and without overlap."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        elif end > start:
            joined.append((start, end))
    return joined


def _length(spans: Iterable[Span]) -> float:
    return sum(end - start for start, end in spans)


def _binned(spans: Iterable[Span], seconds: float) -> tuple[float, ...]:
    """Share of each piece of the window that the spans cover."""
    width = seconds / BINS or 1.0
    bins = [0.0] * BINS
    for start, end in spans:
        first, last = max(0, int(start / width)), min(BINS - 1, int(end / width))
        for place in range(first, last + 1):
            bins[place] += max(0.0, min(end, (place + 1) * width) - max(start, place * width))
    return tuple(round(min(1.0, each / width), 3) for each in bins)


def _memory(events: Sequence[Mapping[str, Any]], origin: float, device: str) -> list[tuple[float, float]]:
    """(seconds, bytes) of the device whose time is told."""
    kind = 1 if device == "cuda" else 0
    found = []
    for event in events:
        told = event.get("args") or {}
        if event.get("name") == "[memory]" and told.get("Device Type") == kind and "Total Allocated" in told:
            found.append(((event["ts"] - origin) * _MICRO, float(told["Total Allocated"])))
    return sorted(found)


def _by_phase(memory: Sequence[tuple[float, float]], phases: Sequence[tuple[float, str]]) -> dict[str, int]:
    """Most bytes in each phase, the largest first; what was before the first one is left out."""
    begins = [when for when, _ in phases]
    peaks: dict[str, int] = {}
    for when, size in memory:
        place = bisect_right(begins, when) - 1
        if place >= 0:
            name = phases[place][1]
            peaks[name] = max(peaks.get(name, 0), int(size))
    return dict(sorted(peaks.items(), key=lambda item: -item[1]))


def _thin(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """The highest of each of so many shares, so that no peak is lost."""
    count = min(MEMORY_POINTS, len(points))
    edges = [len(points) * i // count for i in range(count + 1)] if count else []
    shares = (points[a:b] for a, b in pairwise(edges))
    return tuple((round(when, 6), size) for when, size in (max(share, key=lambda p: p[1]) for share in shares))
