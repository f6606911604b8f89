"""Ledger of a node: causes of all seconds of its ranks, from the ranks' own ledgers and the keeper's clock. Pure.

A node has one slot for each of its ranks; a rank occupies a slot while its generation lasts. Every instant of
every slot has one cause, so the sum is slots x wall. A generation with more ranks than slots adds their time; one
with fewer leaves slots idle. Causes are those of `spec.measurements.LEDGER_CAUSES`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessSpan:
    """Life of one process of a rank in its slot, in seconds of the keeper's clock."""

    slot: int
    """Local rank, from 0."""
    generation: int
    started: float
    ended: float
    booked: Mapping[str, float] = field(default_factory=dict)
    """Last ledger of the rank itself, by cause."""
    booked_at: float | None = None
    """When that ledger was written; None: there is none, as for a plain program."""
    stalled: float = 0.0
    """Silence before the watchdog ended it."""
    clean: bool = True
    """It exited by itself; otherwise its last events may be missing."""


def sum_node_seconds(
    spans: Sequence[ProcessSpan], *, slots: int, start: float, end: float, gathered: float | None = None,
    last_generation: int | None = None,
) -> dict[str, float]:  # fmt: skip
    """Seconds by cause from `start` to `end`; the sum is slots x (end - start) + `excess_seconds`.

    Args:
        spans: In any order; those of one slot do not overlap.
        slots: Of this node.
        start: As all times here, by the keeper's clock.
        end: When all its processes are gone.
        gathered: When the keepers of all nodes were connected, before any span; None: there is only one.
        last_generation: Number of the gang's last one; None: this node took part in it.
    """
    total: dict[str, float] = {}
    for slot in range(slots):
        own = sorted((span for span in spans if span.slot == slot), key=lambda span: span.generation)
        at = start if gathered is None else gathered
        _book(total, "gather", at - start)
        before = None
        for span in own:
            begins = "start" if before is None else "restart"
            skipped = before is not None and span.generation > before.generation + 1
            _book(total, "idle" if skipped else begins, span.started - at)
            _book_span(total, span, begins)
            at, before = span.ended, span
        rests = before is not None and last_generation is not None and before.generation < last_generation
        _book(total, "idle" if rests else "stop" if own else "start", end - at)
    for span in spans:
        if span.slot >= slots:
            _book_span(total, span, "restart")
    return total


def excess_seconds(spans: Sequence[ProcessSpan], *, slots: int) -> float:
    """Seconds of ranks without a slot of their own."""
    return sum(span.ended - span.started for span in spans if span.slot >= slots)


def _book_span(total: dict[str, float], span: ProcessSpan, begins: str) -> None:
    for cause, seconds in _share(span, begins).items():
        _book(total, cause, seconds)


def _share(span: ProcessSpan, begins: str) -> dict[str, float]:
    """Split the span: before its own ledger (`begins`), its ledger, and the time after it."""
    length = span.ended - span.started
    stalled = min(span.stalled, length)
    if span.booked_at is None:
        return {"other": length - stalled, "stalled": stalled}
    written = min(max(span.booked_at, span.started), span.ended)
    share: dict[str, float] = {}
    booked = sum(span.booked.values())
    scale = min(1.0, (written - span.started) / booked) if booked > 0 else 0.0
    for cause, seconds in span.booked.items():
        _book(share, cause, seconds * scale)
    _book(share, begins, written - span.started - booked * scale)
    after = span.ended - written
    _book(share, "stalled", min(stalled, after))
    _book(share, "stop" if span.clean else "restart", after - min(stalled, after))
    return share


def _book(ledger: dict[str, float], cause: str, seconds: float) -> None:
    if seconds > 0:
        ledger[cause] = ledger.get(cause, 0.0) + seconds
