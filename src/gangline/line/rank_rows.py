"""Times of each rank by phase, from the ends of its event file: enough steps to judge by, however long the run was."""

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from gangline.line.curve import read_lines
from gangline.line.record_size import thin_ranks
from gangline.spec.record import RankRow
from gangline.storage.protocol import ObjectStore

MANY_RANKS = 64
TAIL_BYTES = 1 << 20
SHORT_TAIL_BYTES = 1 << 16


def read_ranks(store: ObjectStore, prefix: str, *, world_size: int) -> tuple[RankRow, ...]:
    """A row for each rank that reported steps, thinned to at most 64."""
    tail = TAIL_BYTES if world_size <= MANY_RANKS else SHORT_TAIL_BYTES
    rows = (_row(rank, read_lines(_tail(store, f"{prefix}/ranks/{rank}.jsonl", tail))) for rank in range(world_size))
    return thin_ranks(tuple(row for row in rows if row is not None))


def _tail(store: ObjectStore, key: str, size: int) -> bytes:
    entry = store.head(key)
    if entry is None:
        return b""
    start = max(0, entry.size_bytes - size)
    blob = store.get(key, start)
    return blob.data if blob else b""


def _row(rank: int, events: list[dict[str, Any]]) -> RankRow | None:
    steps = [event for event in events if event.get("event") == "step"]
    if not steps:
        return None
    seconds = [float(step["seconds"]) for step in steps if step.get("seconds") is not None]
    peaks = [int(step["peak_bytes"]) for step in steps if step.get("peak_bytes")]
    return RankRow(
        rank=rank,
        node=_node(events),
        phases=_phases(steps),
        step_seconds=median(seconds) if seconds else None,
        peak_memory_bytes=max(peaks, default=None),
    )


def _phases(steps: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for step in steps:
        for phase, seconds in (step.get("phases") or {}).items():
            sums[phase] = sums.get(phase, 0.0) + float(seconds)
    return {phase: round(seconds, 6) for phase, seconds in sums.items()}


def _node(events: list[dict[str, Any]]) -> str:
    return next((str(event["node"]) for event in events if event.get("event") == "started" and "node" in event), "")
