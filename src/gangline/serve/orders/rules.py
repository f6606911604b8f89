"""Does a commit start a run? The `[trigger]` table of its line, or for a fork of the line it wants to change. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.line.trigger import fork_refusal, push_refusal
from gangline.serve.types import Order
from gangline.spec.line import TriggerTable

SWEPT_SECONDS = 86_400.0
"""What the sweep found may be so old; what is older was there long before anybody missed its event."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What is known of an order once its ref was looked at."""

    branch: str | None
    is_fork: bool
    changed: Sequence[str] | None
    """Paths since the last commit of this place that was built; None: unknown, or none was built."""
    commit_age_seconds: float = 0.0


def refusal(order: Order, trigger: TriggerTable, found: Found) -> str | None:
    """Why no run starts, in one sentence; None: one does. Whoever asks by name, or by schedule, is not asked back."""
    if found.is_fork and (why := fork_refusal(trigger)):
        return why
    if order.cause in {"api", "schedule"}:
        return None
    if why := push_refusal(trigger, branch=found.branch, changed=found.changed):
        return why
    if order.cause == "sweep" and found.commit_age_seconds > SWEPT_SECONDS:
        return "no event told of this commit, and it is older than a day: start it by hand if it is wanted"
    return None
