"""Warnings about a gang: which of its events the observer and the record get, one sentence each.

Every rank reports the same problem, and a second driver sees all events again: equal sentences are one warning.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gangline.launch.protocol import GangEvent
from gangline.line.record.context import RunContext
from gangline.spec.record import SLOW


def warning_of(event: GangEvent) -> str | None:
    """The sentence; None: nothing is wrong, or the gang's end tells it."""
    if event.kind == "restart":
        return f"restart {event.data.get('generation')}: {event.text}"
    if event.data.get("event") == "resized":
        return f"generation {event.data.get('generation')}: {event.text}"
    said = _SAID.get(event.text)
    return said(event.data) if said is not None else None


Data = Mapping[str, Any]


def _refused(data: Data) -> str:
    return f"checkpoint refused, an older one is looked for: {data.get('file')}: {data.get('reason')}"


def _unsaved(data: Data) -> str:
    return f"the checkpoint of step {data.get('step')} could not be saved: {data.get('reason')}"


def _without(data: Data) -> str | None:
    """Every rank tells for itself; one is enough."""
    return f"training goes on without: {data.get('reason')}" if data.get("rank") == 0 else None


def _non_finite(data: Data) -> str | None:
    stops = data.get("answer") == "stop"
    return None if stops else f"step {data.get('step')} was not finite, the answer is {data.get('answer')}"


def _slow(data: Data) -> str:
    """Who holds the gang up, by how much, and in what."""
    longer = f"{float(data.get('ratio') or 1.0):.2f} times as long as the others"
    cost = f"{float(data.get('seconds') or 0.0) * 1e3:.1f} ms a step, most of it in {data.get('phase')}"
    return f"rank {data.get('slow')} on node {data.get('node')} is slow since step {data.get('step')}: {longer}, {cost}"


def _quick(data: Data) -> str:
    return f"rank {data.get('slow')} is as quick as the others again, at step {data.get('step')}"


def _answer(data: Data) -> str:
    """What followed from a slow rank."""
    return f"step {data.get('step')}: {data.get('reason')}"


_SAID: dict[str, Callable[[Data], str | None]] = {
    "checkpoint_refused": _refused, "save_failed": _unsaved, "metrics_not_served": _without, "non_finite": _non_finite,
    SLOW: _slow, "straggler_over": _quick, "straggler_answered": _answer,
}  # fmt: skip
"""By the name of an event."""


def record_warning(ctx: RunContext, stage: str, event: GangEvent) -> None:
    """Tell the observer and the record, each trouble once."""
    said = warning_of(event)
    if said is not None and not any(said == each.text for each in (*ctx.record.events, *ctx.pending)):
        ctx.record_event(stage, SLOW if event.text == SLOW else "trouble", said)
