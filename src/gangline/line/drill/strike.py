"""Waits for the moment, strikes, and watches until the training is past where it was. Knows a gang's folder alone."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import GanglineError, UsageError
from gangline.launch.faults.signals import freeze_rank, kill_rank, last_step
from gangline.launch.local.folder import GangFolder
from gangline.line.drill.catalogue import Kind
from gangline.line.drill.history import Aftermath, History, Strike, aftermath
from gangline.spec.plan import Plan
from gangline.units import format_seconds

POLL_SECONDS = 0.1
PATIENCE_SECONDS = 180.0
"""From the strike, or its end, to the step after the one that was reached."""


class NotStruckError(GanglineError):
    """There was nothing to strike."""

    exit_code = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Aim:
    kind: Kind
    rank: int
    step: int
    seconds: float
    """Of a lasting fault."""


def check_aim(aim: Aim, plan: Plan) -> None:
    """Raises UsageError where the run has no such rank or step."""
    if aim.rank >= plan.world_size:
        raise UsageError(f"--rank {aim.rank}: the gang has {plan.world_size} ranks, 0 to {plan.world_size - 1}")
    if not 1 <= aim.step < plan.steps:
        raise UsageError(f"--step {aim.step}: the run has {plan.steps} steps; strike between 1 and {plan.steps - 1}")


def strike(home: Path, aim: Aim) -> Strike:
    """Strike once the rank has finished the step.

    Raises:
        NotStruckError: The gang ended before, or the rank died by itself.
    """
    folder = GangFolder(home)
    while (reached := last_step(home, aim.rank)) is None or reached < aim.step:
        if folder.end(0) is not None:
            raise NotStruckError(f"the gang ended before rank {aim.rank} reached step {aim.step}")
        time.sleep(POLL_SECONDS / 5)
    status = folder.keeper(0)
    generation = status.generation if status else 0
    mono = time.monotonic()
    try:
        if aim.kind.name == "kill-rank":
            kill_rank(home, aim.rank)
        else:
            freeze_rank(home, aim.rank, aim.seconds)
    except UsageError as error:
        raise NotStruckError(f"rank {aim.rank} was gone: {error}") from error
    lasting = aim.seconds if aim.kind.name == "freeze-rank" else None
    return Strike(rank=aim.rank, step=reached, generation=generation, mono=mono, seconds=lasting)


def watch(home: Path, done: Strike, tell: Callable[[str], None], target: str) -> Aftermath:
    """Read on until the training is past the step it had reached, has ended, or patience is over."""
    folder = GangFolder(home)
    deadline = done.mono + (done.seconds or 0.0) + PATIENCE_SECONDS
    told: set[str] = set()
    while True:
        ended = folder.end(0) is not None
        after = aftermath(History.read(home), done)
        _tell(after, tell, told, target)
        if after.lost_seconds is not None and _is_thawed(done):
            return after
        if ended or time.monotonic() > deadline:
            return after
        time.sleep(POLL_SECONDS)


def _is_thawed(done: Strike) -> bool:
    return done.seconds is None or time.monotonic() > done.mono + done.seconds


def _tell(after: Aftermath, tell: Callable[[str], None], told: set[str], target: str) -> None:
    """Each line once, as soon as all of it is known."""
    answered = after.restarts or after.recover_seconds is not None
    if after.detect_seconds is not None and answered and "detect" not in told:
        told.add("detect")
        tell(f"detect   +{after.detect_seconds:.1f} s   {after.detected}")
    if after.recover_seconds is not None and "recover" not in told:
        told.add("recover")
        ranks = f", world size {after.world_size}" if after.world_size else ""
        tell(f"recover  +{after.recover_seconds:.1f} s   first new step {after.new_step}{ranks}    {target}")


def describe_strike(done: Strike) -> str:
    how = f"stopped for {format_seconds(done.seconds)}" if done.seconds is not None else "SIGKILL"
    return f"inject   +0.0 s   {how} to rank {done.rank} at step {done.step}"
