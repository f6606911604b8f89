"""What a federation did, from the events of rank 0. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from gangline.line.results.loss_curve import each_line
from gangline.metrics.step_table import finite
from gangline.sanitize import clean
from gangline.spec.federated import FederationPlan, FederationResult

_MOST_REASONS, _MOST_LETTERS, _MOST_NAMES = 16, 40, 4
_QUARTERS = 4


def read_federation(texts: Sequence[bytes | Iterable[bytes]], plan: FederationPlan, *, rounds: int) -> FederationResult:
    """Summary of the event files of rank 0, one per gang of the stage in order.

    A round that a restart repeated counts once, by its last merge; what was refused and sent counts each time. The last
    events of a lost pod are lost, too: a round is asked once those before it were merged and saved, so the last one
    says how many were.
    """
    answered: dict[int, float] = {}
    merges = lost = up = down = 0
    refused: Counter[str] = Counter()
    spent: list[float] = []
    engines: set[str] = set()
    accountants: set[str] = set()
    for event in (each for text in texts for each in each_line(text) if each.get("event") in ("round", "round_lost")):
        up, down = up + _count(event, "bytes_up"), down + _count(event, "bytes_down")
        refused.update(_refused(event))
        if (epsilon := finite(event.get("epsilon"))) is not None:
            spent.append(epsilon)
            accountants |= _named(event, "accountant")
        engines |= _named(event, "engine")
        if event["event"] == "round_lost":
            lost += 1
        else:
            merges += 1
            answered[_count(event, "round")] = float(_count(event, "answered"))
    merged = min(max(answered, default=0), rounds)
    numbers = [answered[number] for number in sorted(answered)]
    return FederationResult(
        engine="simulated" if plan.simulated else _joined(engines) or "unknown", roster=len(plan.roster),
        answered=_by_quarter(numbers), rounds=rounds, merged=merged, lost=lost, repeated=merges - len(answered),
        refused=dict(sorted(refused.items())[:_MOST_REASONS]), secure_sum=plan.table.secure_sum,
        epsilon=plan.table.epsilon, delta=plan.table.delta if plan.table.epsilon is not None else None,
        spent=max(spent, default=None), accountant=_joined(accountants), bytes_up=up, bytes_down=down,
    )  # fmt: skip


def _refused(event: Mapping[str, Any]) -> dict[str, int]:
    found = event.get("refused")
    if not isinstance(found, dict):
        return {}
    return {str(name)[:_MOST_LETTERS]: count for name, count in found.items() if type(count) is int and count > 0}


def _named(event: Mapping[str, Any], name: str) -> set[str]:
    value = event.get(name)
    return {clean(value, limit=_MOST_LETTERS)} if isinstance(value, str) and value else set()


def _joined(names: set[str]) -> str | None:
    return ", ".join(sorted(names)[:_MOST_NAMES]) or None


def _count(event: Mapping[str, Any], name: str) -> int:
    value = event.get(name)
    return value if type(value) is int and value > 0 else 0


def _by_quarter(numbers: Sequence[float]) -> tuple[float, ...]:
    count = len(numbers)
    cuts = [count * quarter // _QUARTERS for quarter in range(_QUARTERS + 1)]
    parts = [numbers[start:stop] for start, stop in pairwise(cuts)]
    return tuple(round(fmean(part), 2) for part in parts if part)
