"""Memory over the time of a trace: what was allocated when, thinned for a page, and the peak of each phase. Pure."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from gangline.train.profiling.calls import MICRO

MEMORY_POINTS = 240


def allocated(events: Sequence[Mapping[str, Any]], origin: float, device: str) -> list[tuple[float, float]]:
    """(seconds, bytes) of the device whose time is told."""
    kind = 1 if device == "cuda" else 0
    found = []
    for event in events:
        told = event.get("args") or {}
        if event.get("name") == "[memory]" and told.get("Device Type") == kind and "Total Allocated" in told:
            found.append(((event["ts"] - origin) * MICRO, float(told["Total Allocated"])))
    return sorted(found)


def peaks_by_phase(memory: Sequence[tuple[float, float]], phases: Sequence[tuple[float, str]]) -> dict[str, int]:
    """Most bytes in each phase, the largest first; what was before the first one is left out."""
    begins = [when for when, _ in phases]
    peaks: dict[str, int] = {}
    for when, size in memory:
        place = bisect_right(begins, when) - 1
        if place >= 0:
            name = phases[place][1]
            peaks[name] = max(peaks.get(name, 0), int(size))
    return dict(sorted(peaks.items(), key=lambda item: -item[1]))


def thinned(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """The highest of each of so many shares, so that no peak is lost."""
    count = min(MEMORY_POINTS, len(points))
    edges = [len(points) * i // count for i in range(count + 1)] if count else []
    shares = (points[a:b] for a, b in pairwise(edges))
    return tuple((round(when, 6), size) for when, size in (max(share, key=lambda p: p[1]) for share in shares))
