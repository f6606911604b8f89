"""Bytes as the allocator of torch saw them: its own reports, one for each allocation and release, added up in order."""

from contextlib import contextmanager
from dataclasses import dataclass

from torch.profiler import ProfilerActivity, profile


@dataclass
class Bytes:
    """What was allocated inside the block: still held at its end, and held at most."""

    held: int = 0
    peak: int = 0


@contextmanager
def counted():
    """Yields `Bytes`, filled in when the block ends; what lived before it does not count until it is released."""
    found = Bytes()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler:
        yield found
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            found.held += event.nbytes()
            found.peak = max(found.peak, found.held)
