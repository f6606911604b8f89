"""Where the seconds of a node's ranks went: what ranks booked themselves, filled up with what a keeper knows. Pure.

Every instant of every rank has one cause, so the sum is ranks x wall. Causes are those of `spec.record.LEDGER_CAUSES`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """Life of one process of a rank, in seconds of the keeper's clock."""

    rank: int
    generation: int
    started: float
    ended: float
    booked: Mapping[str, float] = field(default_factory=dict)
    """Its own last ledger, by cause."""
    booked_at: float | None = None
    """When that ledger was written; None: it kept none, as a plain program."""
    stalled: float = 0.0
    """Silence at its end, where the watchdog ended it."""
    clean: bool = True
    """It left by itself; else its last words were cut off."""


def merge_ledgers(
    spans: Sequence[Span], *, ranks: Sequence[int], start: float, end: float, gathered: float | None = None
) -> dict[str, float]:
    """Seconds by cause of `ranks` over the keeper's life from `start` to `end`; sums to ranks x (end - start).

    Args:
        spans: In any order; those of one rank do not overlap.
        ranks: Of this node.
        start: As all times here, by the keeper's clock.
        end: When nothing of it is left.
        gathered: When the keepers of all nodes were there, before any span; None: this one is alone.
    """
    total: dict[str, float] = {}
    for rank in ranks:
        own = sorted((span for span in spans if span.rank == rank), key=lambda span: span.generation)
        at = start if gathered is None else gathered
        _book(total, "gather", at - start)
        for span in own:
            begins = "start" if span is own[0] else "restart"
            _book(total, begins, span.started - at)
            for cause, seconds in _share(span, begins).items():
                _book(total, cause, seconds)
            at = span.ended
        _book(total, "stop" if own else "start", end - at)
    return total


def _share(span: Span, begins: str) -> dict[str, float]:
    """Split the span: before its own books (`begins`), its books, and what came after them."""
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
