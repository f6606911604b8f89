"""Intervals of time: put together, measured, shared out over equal pieces of a window. Pure."""

from collections.abc import Iterable

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
    return sum(end - start for start, end in spans)


def binned(spans: Iterable[Span], seconds: float) -> tuple[float, ...]:
    """Share of each piece of the window that the spans cover."""
    width = seconds / BINS or 1.0
    bins = [0.0] * BINS
    for start, end in spans:
        first, last = max(0, int(start / width)), min(BINS - 1, int(end / width))
        for place in range(first, last + 1):
            bins[place] += max(0.0, min(end, (place + 1) * width) - max(start, place * width))
    return tuple(round(min(1.0, each / width), 3) for each in bins)
