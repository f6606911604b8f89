"""Times of each rank by phase, from its last events, which bounds the reading however long the run was."""

from collections.abc import Iterable, Mapping
from statistics import fmean, median
from typing import Any

from gangline.errors import IntegrityError
from gangline.line.record.store import thin_ranks
from gangline.line.results.loss_curve import read_lines
from gangline.metrics.step_table import finite
from gangline.spec.forecast import PARTS
from gangline.spec.measurements import PHASES, RankRow
from gangline.spec.output_limits import MOST_NAME
from gangline.storage.objects.growing_file import read_growing_file
from gangline.storage.objects.protocol import ObjectStore

MANY_RANKS = 64
TAIL_BYTES = 1 << 20
SHORT_TAIL_BYTES = 1 << 16
MOST_TIMED = 8
WARM_UP_STEPS = 2
_PARTS_OF = {"forward": "compute", "backward": "compute", "wait": "communication"}


def read_ranks(store: ObjectStore, prefix: str, *, world_size: int) -> tuple[RankRow, ...]:
    """A row for each rank that reported steps, thinned to at most 64."""
    tail = TAIL_BYTES if world_size <= MANY_RANKS else SHORT_TAIL_BYTES
    rows = (_row(rank, read_tail(store, prefix, rank, tail)) for rank in range(world_size))
    return thin_ranks(tuple(row for row in rows if row is not None))


def read_parts(store: ObjectStore, prefix: str, *, world_size: int) -> dict[str, float]:
    """Seconds of a step by part, the mean over at most 8 evenly spaced ranks; parts that take no time are left out.

    The value of a rank is the median of its last steps, without two steps of warm-up; for checkpoints, which come only
    now and then, it is the mean.
    """
    ranks = sorted({world_size * place // MOST_TIMED for place in range(MOST_TIMED)})
    tail = TAIL_BYTES if world_size <= MANY_RANKS else SHORT_TAIL_BYTES
    rows = (parts_of(read_tail(store, prefix, rank, tail)) for rank in ranks)
    found = [row for row in rows if row]
    means = {part: fmean(row.get(part, 0.0) for row in found) for part in PARTS if found}
    return {part: round(seconds, 9) for part, seconds in means.items() if seconds > 0}


def parts_of(events: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Seconds of a step by part, from the events of one rank; empty if it reported no step."""
    steps = [phases for event in events if event.get("event") == "step" and (phases := _phases_of(event))]
    steps = steps[WARM_UP_STEPS:] or steps
    if not steps:
        return {}
    found: dict[str, float] = {}
    for phase in PHASES:
        seconds = [step.get(phase, 0.0) for step in steps]
        part = _PARTS_OF.get(phase, phase)
        found[part] = found.get(part, 0.0) + (fmean(seconds) if phase == "checkpoint" else median(seconds))
    return found


def read_save_seconds(store: ObjectStore, prefix: str) -> float | None:
    """Mean time for which a save blocked training, from the last saves of rank 0; None if it saved nothing."""
    events = read_tail(store, prefix, 0, TAIL_BYTES)
    values = [finite(event.get("blocking_seconds")) for event in events if event.get("event") == "saved"]
    seconds = [value for value in values if value is not None]
    return round(fmean(seconds), 6) if seconds else None


def read_tail(store: ObjectStore, prefix: str, rank: int, size: int = SHORT_TAIL_BYTES) -> list[dict[str, Any]]:
    """The last events of a rank; empty if there are none."""
    try:
        return read_lines(read_growing_file(store, f"{prefix}/ranks/{rank}.jsonl", last=size, most_bytes=size) or b"")
    except IntegrityError:  # too many parts to read; these times are for display only
        return []


def _row(rank: int, events: list[dict[str, Any]]) -> RankRow | None:
    steps = [event for event in events if event.get("event") == "step"]
    if not steps:
        return None
    seconds = [each for step in steps if (each := finite(step.get("seconds"))) is not None]
    peaks = [int(each) for step in steps if (each := finite(step.get("peak_bytes")))]
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
        for phase, seconds in _phases_of(step).items():
            sums[phase] = sums.get(phase, 0.0) + seconds
    return {phase: round(seconds, 6) for phase, seconds in sums.items()}


def _phases_of(step: Mapping[str, Any]) -> dict[str, float]:
    """Seconds by phase, of the phases that the step reports."""
    phases = step.get("phases")
    if not isinstance(phases, dict):
        return {}
    return {phase: seconds for phase in PHASES if (seconds := finite(phases.get(phase))) is not None}


def _node(events: list[dict[str, Any]]) -> str:
    named = (event["node"] for event in events if event.get("event") == "started" and "node" in event)
    return str(next(named, ""))[:MOST_NAME]
