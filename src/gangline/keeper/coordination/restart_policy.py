"""Restart policy for a gang: whether another generation follows, how often, and the reason. Pure: times are given."""

from dataclasses import dataclass
from typing import Literal

from gangline.errors import (
    SIGTERM_CODE,
    LostPeerError,
    NoProgressError,
    RetryClass,
    StorageError,
    TrainingError,
    retry_class,
)
from gangline.keeper.ranks.generation_result import GenerationResult
from gangline.keeper.ranks.rank_exit import classify, describe
from gangline.keeper.ranks.stop_request import StopRequest

EVENT_SECONDS = 1.0
"""Deaths so close to the first one are the same event."""
REFILL_SECONDS = 3600.0


class RestartBudget:
    """Counts events, not deaths; full again after a clean hour."""

    def __init__(self, max_events: int) -> None:
        self.max_events = max_events
        self.spent = 0
        self._event: float | None = None

    def charge(self, now: float) -> Literal["charged", "same event", "refused"]:
        """Ask for one more generation after a death at `now`."""
        if self._event is not None and now - self._event <= EVENT_SECONDS:
            return "same event"
        if self._event is not None and now - self._event > REFILL_SECONDS:
            self.spent = 0
        if self.spent >= self.max_events:
            return "refused"
        self.spent += 1
        self._event = now
        return "charged"


_LONGEST_PAUSE_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RestartDecision:
    restart: bool
    exit_code: int
    retry: RetryClass
    reason: str
    culprit: int | None = None
    charged: bool = False
    pause_seconds: float = 0.0
    """Before the next generation: a store that is away is not helped by haste."""
    resize: bool = False
    """The next generation has another size because somebody asked: nothing went wrong, nothing is counted."""


def decide_restart(
    outcome: GenerationResult, budget: RestartBudget, *, oom_kills: int, now: float, word: str = ""
) -> RestartDecision:
    """Decide after a generation.

    Args:
        outcome: How it ended.
        budget: Charged for a restart that costs.
        oom_kills: Processes killed for memory in this cgroup during the generation.
        now: Monotonic time of the death.
        word: What the failed rank itself said that it ended of.
    """
    if outcome.order is not None:
        return stopped_on_request(outcome)
    if (blow := _gang_failure(outcome)) is not None:
        code, reason, rank = blow
        return _restart_or_fail(budget, now=now, code=code, retry="same", reason=reason, rank=rank)
    if outcome.failed is None:
        return RestartDecision(restart=False, exit_code=0, retry="never", reason="all ranks are done")
    code, retry = classify(outcome.failed, oom_kills=oom_kills)
    reason, rank = describe(outcome.failed, oom_kills=oom_kills, word=word), outcome.failed.rank
    if retry == "free" and outcome.progressed:
        return RestartDecision(
            restart=True, exit_code=code, retry=retry, reason=f"{reason} after it saved", culprit=rank
        )
    if retry in ("free", "same"):
        return _restart_or_fail(budget, now=now, code=code, retry=retry, reason=reason, rank=rank)
    return RestartDecision(
        restart=False, exit_code=code, retry=retry, reason=f"{reason}; see logs/{rank}.log", culprit=rank
    )


def _gang_failure(outcome: GenerationResult) -> tuple[int, str, int] | None:
    """What befell the gang without any rank failing first: code, reason, rank."""
    if (lost := outcome.lost) is not None:
        return LostPeerError.exit_code, lost.reason, lost.rank
    if (hang := outcome.hang) is not None:
        return NoProgressError.exit_code, hang.reason, hang.rank
    return None


def stopped_before_start(order: StopRequest, generation: int) -> RestartDecision:
    """Asked to stop while no rank runs: nothing is lost, but what was asked for is not done."""
    retry: RetryClass = "free" if order.exit_code == SIGTERM_CODE else "never"
    reason = f"{order.reason}, before the ranks of generation {generation} started"
    return RestartDecision(restart=False, exit_code=order.exit_code, retry=retry, reason=reason)


def stopped_on_request(outcome: GenerationResult) -> RestartDecision:
    """The order's own code, unless the ranks were done anyway."""
    order = outcome.order
    assert order is not None
    codes = {each.code for each in outcome.exits}
    if codes == {0}:
        return RestartDecision(restart=False, exit_code=0, retry="never", reason=f"{order.reason}; all ranks were done")
    if order.resize:
        return RestartDecision(restart=True, exit_code=order.exit_code, retry="free", reason=order.reason, resize=True)
    saved = all(each.saved or each.code == 0 for each in outcome.exits)
    retry = retry_class(order.exit_code, saved=saved) if order.exit_code == SIGTERM_CODE else "never"
    reason = f"{order.reason}; {'all ranks saved and left' if saved else 'the ranks were ended without saving'}"
    return RestartDecision(restart=False, exit_code=order.exit_code, retry=retry, reason=reason)


def _restart_or_fail(
    budget: RestartBudget, *, now: float, code: int, retry: RetryClass, reason: str, rank: int
) -> RestartDecision:
    """Another generation, while the budget lasts."""
    where = f"see logs/{rank}.log"
    answer = budget.charge(now)
    if answer != "refused":
        pause = min(2.0**budget.spent, _LONGEST_PAUSE_SECONDS) if code == StorageError.exit_code else 0.0
        return RestartDecision(
            restart=True,
            exit_code=code,
            retry=retry,
            reason=reason,
            culprit=rank,
            charged=answer == "charged",
            pause_seconds=pause,
        )
    if budget.max_events == 0:
        code = TrainingError.exit_code if code == SIGTERM_CODE else code  # that one says: asked to leave, start another
        return RestartDecision(restart=False, exit_code=code, retry=retry, reason=f"{reason}; {where}", culprit=rank)
    spent = f"{reason}; all {budget.max_events} restarts of train.recovery.max_events are spent, {where}"
    return RestartDecision(restart=False, exit_code=TrainingError.exit_code, retry="never", reason=spent, culprit=rank)
