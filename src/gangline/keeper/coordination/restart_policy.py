"""Restart policy for a gang: whether another generation follows, how often, and for which reason. Pure."""

from dataclasses import dataclass, replace
from typing import Literal

from gangline.errors import (
    SIGKILL_CODE,
    SIGTERM_CODE,
    LostPeerError,
    NoProgressError,
    OutOfMemoryError,
    RetryClass,
    StorageError,
    TrainingError,
    retry_class,
)
from gangline.keeper.ranks.generation_result import GenerationResult
from gangline.keeper.ranks.rank_exit import classify, describe, describe_leavers, name_ranks
from gangline.keeper.ranks.stop_request import StopRequest
from gangline.spec.gang.status import saved_text

EVENT_SECONDS = 1.0
"""Deaths within this time of the first one belong to the same event."""
EVENT_RESTARTS = 4
"""Restarts of one event: a gang that ends as fast as it starts is charged again after as many."""
REFILL_SECONDS = 3600.0


class RestartBudget:
    """Number of restarts left. Counts events, not deaths; full again after an hour without one."""

    def __init__(self, max_events: int) -> None:
        self.max_events = max_events
        self.spent = 0
        self._event: float | None = None
        self._restarts = 0
        """Restarts since that event began."""
        self._free_step = -1
        """Step that the gang had reached at its last free restart."""

    def charge(self, now: float) -> Literal["charged", "same event", "refused"]:
        """Charge a restart after a death at `now`, in monotonic seconds."""
        self._restarts += 1
        if self._event is not None and now - self._event <= EVENT_SECONDS and self._restarts <= EVENT_RESTARTS:
            return "same event"
        if self._event is not None and now - self._event > REFILL_SECONDS:
            self.spent = 0
        if self.spent >= self.max_events:
            return "refused"
        self.spent += 1
        self._event, self._restarts = now, 1
        return "charged"

    def is_free(self, step: int | None) -> bool:
        """A restart at this step costs nothing: the gang is beyond the step of its last free one. None: not known."""
        if step is None or step <= self._free_step:
            return False
        self._free_step = step
        return True


_LONGEST_PAUSE_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RestartDecision:
    """What follows a generation: another one, or the end of the gang."""

    restart: bool
    exit_code: int
    retry: RetryClass
    reason: str
    culprit: int | None = None
    charged: bool = False
    pause_seconds: float = 0.0
    """Pause before the next generation, for a store that failed."""
    resize: bool = False
    """The next generation has another size on request: nothing failed, nothing is counted."""


def decide_restart(
    outcome: GenerationResult, budget: RestartBudget, *, oom_kills: int, now: float, rank_reason: str = ""
) -> RestartDecision:
    """Decide after a generation.

    Args:
        outcome: How it ended.
        budget: Charged for a restart that costs.
        oom_kills: Processes killed for memory in this cgroup during the generation.
        now: Monotonic time of the death.
        rank_reason: Reason that the failed rank itself gave.
    """
    if outcome.stop is not None:
        return stopped_on_request(outcome)
    if (failure := _gang_failure(outcome, now)) is not None:
        code, reason, rank = failure
        return _restart_or_fail(budget, now=now, code=code, retry="same", reason=reason, rank=rank)
    if outcome.failed is None:
        return RestartDecision(restart=False, exit_code=0, retry="never", reason="all ranks are done")
    code, retry = classify(outcome.failed, oom_kills=oom_kills)
    reason, rank = describe(outcome.failed, oom_kills=oom_kills, reason=rank_reason), outcome.failed.rank
    if code not in (SIGKILL_CODE, SIGTERM_CODE, OutOfMemoryError.exit_code):
        reason = _joined(reason, describe_leavers(outcome.exits, before=now))  # a kill comes from elsewhere
    if retry == "free" and outcome.progressed and budget.is_free(outcome.step):
        return RestartDecision(
            restart=True, exit_code=code, retry=retry, reason=f"{reason} after it saved", culprit=rank
        )
    if retry in ("free", "same"):
        return _restart_or_fail(budget, now=now, code=code, retry=retry, reason=reason, rank=rank)
    return RestartDecision(
        restart=False, exit_code=code, retry=retry, reason=f"{reason}; see logs/{rank}.log", culprit=rank
    )


def _gang_failure(outcome: GenerationResult, now: float) -> tuple[int, str, int] | None:
    """Failure of the gang before any rank failed: code, reason, rank; None: a rank failed first."""
    if (lost := outcome.lost) is not None:
        return LostPeerError.exit_code, lost.reason, lost.rank
    if (hang := outcome.hang) is not None:
        reason = _joined(hang.reason, describe_leavers(outcome.exits, before=now))
        return NoProgressError.exit_code, reason, hang.rank
    return None


def stopped_before_start(stop: StopRequest, generation: int) -> RestartDecision:
    """Decision for a stop request while no rank runs: nothing is lost, but the training is not done."""
    retry: RetryClass = "free" if stop.exit_code == SIGTERM_CODE else "never"
    reason = f"{stop.reason}, before the ranks of generation {generation} started"
    return RestartDecision(restart=False, exit_code=stop.exit_code, retry=retry, reason=reason)


def stopped_on_request(outcome: GenerationResult) -> RestartDecision:
    """Decision after a stop request: its exit code, unless all ranks were done.

    A program may answer the request by ending with 0, so that code alone does not say that it was done.
    """
    stop, exits = outcome.stop, outcome.exits
    assert stop is not None, "the caller checks"
    if exits and all(rank_exit.finished for rank_exit in exits):
        return RestartDecision(restart=False, exit_code=0, retry="never", reason=f"{stop.reason}; all ranks were done")
    unproven = sorted(
        (rank_exit for rank_exit in exits if rank_exit.code == 0 and not rank_exit.finished),
        key=lambda rank_exit: rank_exit.rank,
    )
    said = f"{name_ranks(unproven)} left with code 0 and did not report the last step" if unproven else ""
    reason = _joined(stop.reason, said, saved_text(outcome.step, outcome.saved_step))
    if stop.resize:
        return RestartDecision(restart=True, exit_code=stop.exit_code, retry="free", reason=reason, resize=True)
    left = all(rank_exit.left for rank_exit in exits)
    retry = retry_class(stop.exit_code, saved=left) if stop.exit_code == SIGTERM_CODE else "never"
    return RestartDecision(restart=False, exit_code=stop.exit_code, retry=retry, reason=reason)


def replaced_node(stopped: RestartDecision, step: int | None, budget: RestartBudget, *, now: float) -> RestartDecision:
    """Decision after a node was asked to leave: the gang continues with its replacement, for nothing.

    It is charged where the gang has made no step since its last free restart; `step` None: not known.
    """
    free = RestartDecision(restart=True, exit_code=stopped.exit_code, retry="free", reason=stopped.reason)
    if step is None or budget.is_free(step):
        return free
    answer = budget.charge(now)
    if answer == "refused":
        reason = f"{stopped.reason}; train.recovery.max_events = {budget.max_events} is used up"
        return RestartDecision(restart=False, exit_code=TrainingError.exit_code, retry="never", reason=reason)
    return replace(free, charged=answer == "charged")


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _restart_or_fail(
    budget: RestartBudget, *, now: float, code: int, retry: RetryClass, reason: str, rank: int
) -> RestartDecision:
    """Another generation if the budget allows it."""
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
        code = TrainingError.exit_code if code == SIGTERM_CODE else code  # 143 would ask the launcher for another start
        return RestartDecision(restart=False, exit_code=code, retry=retry, reason=f"{reason}; {where}", culprit=rank)
    spent = f"{reason}; train.recovery.max_events = {budget.max_events} is used up, {where}"
    return RestartDecision(restart=False, exit_code=TrainingError.exit_code, retry="never", reason=spent, culprit=rank)
