"""Warnings about a gang: the sentence of each event that the observer and the record get.

Every rank reports the same problem, and a second driver sees all events again: equal sentences are one warning.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gangline.launch.protocol import GangEvent
from gangline.line.record.context import RunContext
from gangline.spec.record import NOT_JUDGED, SLOW
from gangline.units import format_seconds

WORKER_SLOW = "worker_slow"
_SLOWNESS = (SLOW, NOT_JUDGED, WORKER_SLOW)


def warning_of(event: GangEvent) -> str | None:
    """The warning of an event; None if it is no problem, or comes with the gang's end."""
    if event.kind == "restart":
        return f"restart {event.data.get('generation')}: {event.text}"
    if event.data.get("event") == "resized":
        return f"generation {event.data.get('generation')}: {event.text}"
    if event.data.get("event") in ("tiles_not_known", "evicted"):
        return event.text
    write = _WARNINGS.get(event.text)
    return write(event.data) if write is not None else None


Data = Mapping[str, Any]


def _checkpoint_refused(data: Data) -> str:
    return f"checkpoint refused, trying an older one: {data.get('file')}: {data.get('reason')}"


def _save_failed(data: Data) -> str:
    return f"the checkpoint of step {data.get('step')} could not be saved: {data.get('reason')}"


def _metrics_not_served(data: Data) -> str | None:
    """Every rank reports this for itself; one warning is enough."""
    return f"training continues without: {data.get('reason')}" if data.get("rank") == 0 else None


def _non_finite(data: Data) -> str | None:
    if data.get("answer") == "stop":
        return None
    return f"step {data.get('step')} was not finite, the answer is {data.get('answer')}"


def _slow(data: Data) -> str:
    """Which rank slows the gang down, by how much, and in which phase."""
    longer = f"{float(data.get('ratio') or 1.0):.2f} times as long as the others"
    cost = f"{float(data.get('seconds') or 0.0) * 1e3:.1f} ms a step, most of it in {data.get('phase')}"
    return f"rank {data.get('slow')} on node {data.get('node')} is slow since step {data.get('step')}: {longer}, {cost}"


def _no_longer_slow(data: Data) -> str:
    return f"rank {data.get('slow')} is as fast as the others again, at step {data.get('step')}"


def _slow_answer(data: Data) -> str:
    """How the gang responds to a slow rank."""
    return f"step {data.get('step')}: {data.get('reason')}"


def _not_judged(data: Data) -> str:
    return str(data.get("reason"))


def _worker_silent(data: Data) -> str:
    silent = format_seconds(float(data.get("seconds") or 0.0))
    return f"worker {data.get('worker')} has pushed nothing for {silent}; the others train on"


def _worker_back(data: Data) -> str:
    """How long a worker was missed, and how long it had no answer of the store, as it measured it."""
    away, without = (float(data.get(name) or 0.0) for name in ("seconds", "without_store"))
    why = f"; the store gave it no answer for {format_seconds(without)}" if without else ""
    return f"worker {data.get('worker')} pushes again after {format_seconds(away)}{why}"


def _worker_slow(data: Data) -> str:
    ratio = float(data.get("ratio") or 1.0)
    return f"worker {data.get('worker')} is slow: its blocks take {ratio:.1f} times as long as those of the others"


def _version_damaged(data: Data) -> str:
    return f"the newest version of shard {data.get('shard')} is damaged, the one before is taken: {data.get('reason')}"


_WARNINGS: dict[str, Callable[[Data], str | None]] = {
    "checkpoint_refused": _checkpoint_refused, "save_failed": _save_failed, "metrics_not_served": _metrics_not_served,
    "non_finite": _non_finite, SLOW: _slow, "straggler_over": _no_longer_slow, "straggler_answered": _slow_answer,
    NOT_JUDGED: _not_judged, "worker_silent": _worker_silent, "worker_back": _worker_back,
    WORKER_SLOW: _worker_slow, "version_damaged": _version_damaged,
}  # fmt: skip
"""Function that words a warning, by the name of the event."""


def record_warning(ctx: RunContext, stage: str, event: GangEvent) -> None:
    """Send the warning of `event`, if it has one, to the observer and the record; equal warnings once."""
    warning = warning_of(event)
    if warning is not None and not any(warning == each.text for each in (*ctx.record.events, *ctx.pending)):
        ctx.record_event(stage, SLOW if event.text in _SLOWNESS else "trouble", warning)
