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
"""From the strike, or its end, to the step after the one that was reached."""


class NotInjectedError(GanglineError):
    """There was nothing to strike."""

    exit_code = 10


def inject_fault(home: Path, aim: DrillTarget, *, rig: DrillSetup, plan: Plan) -> Injection:
    """Strike once the rank has finished the step.

    Raises:
        NotStruckError: The gang ended before, or the rank died by itself.
    """
    folder = GangFolder(home)
    while (reached := last_step(home, aim.rank)) is None or reached < aim.step:
        if folder.end(0) is not None:
            told = "; its program told no step, and only what tells steps can be struck" if reached is None else ""
            raise NotInjectedError(f"the gang ended before rank {aim.rank} reached step {aim.step}{told}")
        time.sleep(POLL_SECONDS / 5)
    status = folder.keeper(0)
    generation = status.generation if status else 0
    try:
        mono = rig.strike(home, aim)
    except UsageError as error:
        raise NotInjectedError(f"rank {aim.rank} was gone: {error}") from error
    within = aim.kind.rig == "task"
    return Injection(
        rank=aim.rank, step=aim.step if within else reached, generation=generation, mono=mono, seconds=aim.seconds,
        ranks=aim.ranks, stays=within or aim.kind.rig == "store", ends=_end_wanted(aim, plan),
        every=plan.checkpoint.every, steps=plan.steps, patience=plan.checkpoint.max_unsaved_seconds,
    )  # fmt: skip


def _end_wanted(aim: DrillTarget, plan: Plan) -> int | None:
    if aim.kind.name == "oom":
        return OutOfMemoryError.exit_code
    if aim.kind.name == "poison" and plan.recovery.non_finite == "stop":
        return NonFiniteError.exit_code
    return None


def watch_recovery(
    home: Path,
    aim: DrillTarget,
    done: Injection,
    tell: Callable[[str], None],
    *,
    look: Callable[[], None] | None = None,
) -> Aftermath:
    """Read on until the training is past the step it had reached, has ended, or patience is over.

    `look` is called again and again while a lasting fault lasts.
    """
    folder = GangFolder(home)
    deadline = done.mono + (done.seconds or 0.0) + RECOVERY_SECONDS
    told: set[str] = set()
    while True:
        ended = folder.end(0) is not None
        history = DrillHistory.read(folder.inside)
        after = aftermath(history, done)
        felt = availability_of(aim, history, done)
        if felt is None:
            _tell(after, tell, told, aim.kind.target)
            _tell_end(after, done, tell, told, aim.kind.target)
        else:
            _tell_felt(felt, tell, told, aim)
        is_over = ended if done.ends is not None else _is_past(after, felt)
        if (is_over and _is_over(done)) or ended or time.monotonic() > deadline:
            return after
        if look is not None and not _is_over(done):
            look()
        time.sleep(POLL_SECONDS)


def availability_of(aim: DrillTarget, history: DrillHistory, done: Injection) -> Availability | None:
    """Of a store that was struck; None: it was not."""
    if aim.kind.rig != "store":
        return None
    return availability(history, done, slow=aim.kind.name == "slow-store")


def _is_past(after: Aftermath, felt: Availability | None) -> bool:
    return after.lost_seconds is not None if felt is None else felt.durable_seconds is not None


def _is_over(done: Injection) -> bool:
    return done.seconds is None or time.monotonic() > done.mono + done.seconds


def _tell(after: Aftermath, tell: Callable[[str], None], told: set[str], target: str) -> None:
    """Each line once, as soon as all of it is known."""
    answered = after.restarts or after.recover_seconds is not None or after.exit_code is not None or after.answer
    if after.detect_seconds is not None and answered and "detect" not in told:
        told.add("detect")
        tell(f"detect   +{after.detect_seconds:.1f} s   {after.detected}")
    if after.recover_seconds is not None and "recover" not in told:
        told.add("recover")
        ranks = f", world size {after.world_size}" if after.world_size else ""
        opened = f", opened from {_SOURCES[after.source]}" if after.source else ""
        tell(f"recover  +{after.recover_seconds:.1f} s   first new step {after.new_step}{ranks}{opened}    {target}")


def _tell_end(after: Aftermath, done: Injection, tell: Callable[[str], None], told: set[str], target: str) -> None:
    """Of a gang that was to end."""
    if done.ends is not None and after.exit_code is not None and "end" not in told:
        told.add("end")
        tell(f"end      exit {after.exit_code}    {target}")


def _tell_felt(felt: Availability, tell: Callable[[str], None], told: set[str], aim: DrillTarget) -> None:
    """As `_tell`, of a store."""
    if felt.met_seconds is not None and "met" not in told:
        told.add("met")
        tell(f"meet     +{felt.met_seconds:.1f} s   the save of step {felt.met_step}")
    if felt.failed_seconds is not None and "failed" not in told:
        told.add("failed")
        tell(f"detect   +{felt.failed_seconds:.1f} s   save failed: {felt.said}")
    if felt.durable_seconds is not None and "durable" not in told:
        told.add("durable")
        since = "after the strike" if aim.kind.name == "slow-store" else "after it was over"
        tell(
            f"recover  +{felt.durable_seconds:.1f} s   {since}: step {felt.durable_step} is durable, "
            f"{felt.steps} steps meanwhile    {aim.kind.target}"
        )


def describe_injection(aim: DrillTarget, done: Injection) -> str:
    return f"inject   +0.0 s   {describe_fault(aim)} at step {done.step}"
