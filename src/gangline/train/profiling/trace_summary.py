"""Summary of a profiler trace: time by category, memory over time, longest operators. Pure: no torch, no files."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from gangline.spec.gang.profiling import CATEGORIES, Operator, ProfiledStep, ProfileRequest, ProfileSummary
from gangline.train.profiling.trace_calls import (
    KERNELS,
    MICRO,
    STEP,
    Span,
    TraceCall,
    binned,
    calls_of,
    is_step,
    length,
    union,
)

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
