"""Injection of a fault: waits for its step, injects it, and watches until the training is past that step."""

import time
from collections.abc import Callable
from pathlib import Path

from gangline.drill.availability import Availability, availability
from gangline.drill.fault_actions import describe_fault
from gangline.drill.history import Aftermath, DrillHistory, Injection, aftermath
from gangline.drill.setup import DrillSetup
from gangline.drill.target import DrillTarget
from gangline.errors import GanglineError, NonFiniteError, OutOfMemoryError, UsageError
from gangline.faults.process_faults import last_step
from gangline.launch.local.folder import GangFolder
from gangline.spec.plan import Plan

POLL_SECONDS = 0.1
_SOURCES = {"copy": "the memory of a node", "store": "the store"}
RECOVERY_SECONDS = 180.0
"""Time limit from the end of the fault to the step after the one that was reached."""


class NotInjectedError(GanglineError):
    """The fault could not be injected."""

    exit_code = 10


def inject_fault(home: Path, target: DrillTarget, *, setup: DrillSetup, plan: Plan) -> Injection:
    """Inject the fault once the rank has finished the step.

    Raises:
        NotInjectedError: The gang ended before, or the rank died by itself.
    """
    folder = GangFolder(home)
    while (reached := last_step(home, target.rank)) is None or reached < target.step:
        if folder.end(0) is not None:
            reported = "; its program reported no step, which a drill needs" if reached is None else ""
            raise NotInjectedError(f"the gang ended before rank {target.rank} reached step {target.step}{reported}")
        time.sleep(POLL_SECONDS / 5)
    status = folder.keeper(0)
    generation = status.generation if status else 0
    try:
        mono = setup.inject(home, target)
    except UsageError as error:
        raise NotInjectedError(f"rank {target.rank} could not be reached: {error}") from error
    within = target.kind.setup == "task"
    return Injection(
        rank=target.rank, step=target.step if within else reached, generation=generation, mono=mono,
        seconds=target.seconds,
        ranks=target.ranks, stays=within or target.kind.setup == "store", ends=_end_wanted(target, plan),
        every=plan.checkpoint.every, steps=plan.steps, patience=plan.checkpoint.max_unsaved_seconds,
    )  # fmt: skip


def _end_wanted(target: DrillTarget, plan: Plan) -> int | None:
    if target.kind.name == "oom":
        return OutOfMemoryError.exit_code
    if target.kind.name == "poison" and plan.recovery.non_finite == "stop":
        return NonFiniteError.exit_code
    return None


def watch_recovery(
    home: Path,
    target: DrillTarget,
    injection: Injection,
    tell: Callable[[str], None],
    *,
    look: Callable[[], None] | None = None,
) -> None:
    """Watch until the training is past the step it had reached, has ended, or the time limit is over.

    `look` is called repeatedly during the fault.
    """
    folder = GangFolder(home)
    deadline = injection.mono + (injection.seconds or 0.0) + RECOVERY_SECONDS
    reported: set[str] = set()
    while True:
        ended = folder.end(0) is not None
        history = DrillHistory.read(folder.inside)
        after = aftermath(history, injection)
        effect = availability_of(target, history, injection)
        if effect is None:
            _report_recovery(after, tell, reported, target.kind.target)
            _report_end(after, injection, tell, reported, target.kind.target)
        else:
            _report_effect(effect, tell, reported, target)
        is_over = ended if injection.ends is not None else _is_past(after, effect)
        if (is_over and _is_over(injection)) or ended or time.monotonic() > deadline:
            return
        if look is not None and not _is_over(injection):
            look()
        time.sleep(POLL_SECONDS)


def availability_of(target: DrillTarget, history: DrillHistory, injection: Injection) -> Availability | None:
    """Effect on the gang of an outage of the store; None for other drills."""
    if target.kind.setup != "store":
        return None
    return availability(history, injection, slow=target.kind.name == "slow-store")


def _is_past(after: Aftermath, effect: Availability | None) -> bool:
    return after.lost_seconds is not None if effect is None else effect.durable_seconds is not None


def _is_over(injection: Injection) -> bool:
    return injection.seconds is None or time.monotonic() > injection.mono + injection.seconds


def _report_recovery(after: Aftermath, tell: Callable[[str], None], reported: set[str], target: str) -> None:
    """Report each line once, when all of it is known."""
    answered = after.restarts or after.recover_seconds is not None or after.exit_code is not None or after.answer
    if after.detect_seconds is not None and answered and "detect" not in reported:
        reported.add("detect")
        tell(f"detect   +{after.detect_seconds:.1f} s   {after.detected}")
    if after.recover_seconds is not None and "recover" not in reported:
        reported.add("recover")
        ranks = f", world size {after.world_size}" if after.world_size else ""
        opened = f", opened from {_SOURCES[after.source]}" if after.source else ""
        tell(f"recover  +{after.recover_seconds:.1f} s   first new step {after.new_step}{ranks}{opened}    {target}")


def _report_end(
    after: Aftermath, injection: Injection, tell: Callable[[str], None], reported: set[str], target: str
) -> None:
    """Report once that a gang has ended which was expected to end."""
    if injection.ends is not None and after.exit_code is not None and "end" not in reported:
        reported.add("end")
        tell(f"end      exit {after.exit_code}    {target}")


def _report_effect(effect: Availability, tell: Callable[[str], None], reported: set[str], target: DrillTarget) -> None:
    """Report each line about an outage of the store once, when all of it is known."""
    if effect.met_seconds is not None and "met" not in reported:
        reported.add("met")
        tell(f"meet     +{effect.met_seconds:.1f} s   the save of step {effect.met_step}")
    if effect.failed_seconds is not None and "failed" not in reported:
        reported.add("failed")
        tell(f"detect   +{effect.failed_seconds:.1f} s   save failed: {effect.said}")
    if effect.durable_seconds is not None and "durable" not in reported:
        reported.add("durable")
        since = "after the injection" if target.kind.name == "slow-store" else "after it was over"
        tell(
            f"recover  +{effect.durable_seconds:.1f} s   {since}: step {effect.durable_step} is durable, "
            f"{effect.steps} steps meanwhile    {target.kind.target}"
        )


def describe_injection(target: DrillTarget, injection: Injection) -> str:
    """The line of the report on the injection."""
    return f"inject   +0.0 s   {describe_fault(target)} at step {injection.step}"
