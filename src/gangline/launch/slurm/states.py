"""State of a gang by what Slurm says of its job and its keepers in their files, and ends for nodes without. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from gangline.errors import (
    SIGKILL_CODE,
    SIGTERM_CODE,
    CancelledError,
    CapacityError,
    ConfigError,
    LostPeerError,
    OutOfMemoryError,
    RetryClass,
    retry_class,
)
from gangline.launch.slurm.commands import SlurmJob
from gangline.spec.gang.status import GangEnd, GangState
from gangline.units import now

_STARTING = ("CONFIGURING", "RESIZING", "STAGE_OUT", "SUSPENDED", "STOPPED")
WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED")
_NEXT_GANG: dict[str, tuple[int, RetryClass, str]] = {
    "PREEMPTED": (SIGTERM_CODE, "free", "was preempted before it had saved"),
    "NODE_FAIL": (SIGKILL_CODE, "same", "lost a server"),
    "BOOT_FAIL": (SIGKILL_CODE, "same", "got a server that did not boot"),
    "TIMEOUT": (SIGKILL_CODE, "same", "reached its time limit before it had saved; raise slurm.margin_seconds"),
    "DEADLINE": (CapacityError.exit_code, CapacityError.retry, "reached the deadline that Slurm has for it"),
    "OUT_OF_MEMORY": (OutOfMemoryError.exit_code, OutOfMemoryError.retry, "had too little memory on a server"),
    "CANCELLED": (CancelledError.exit_code, CancelledError.retry, "was cancelled in Slurm, not by gangline"),
}
"""Exit code, retry class and what happened, by the state of a job without the end of a keeper."""


def state_of(job: SlurmJob | None, files: GangState) -> GangState:
    """State of a gang that is not cancelled.

    Args:
        job: As Slurm knows it now; None: Slurm has forgotten it, which it does some minutes after its end.
        files: State by the files of its keepers.
    """
    if job is None or job.is_over:
        return "ended"
    if job.state in WAITING:
        return "waiting"
    if job.state in _STARTING:
        return "starting"
    if job.state == "COMPLETING" or files == "ended":
        return "stopping"
    return files


def is_final(ends: Sequence[GangEnd | None]) -> bool:
    """Every keeper has ended, and the script puts the job back into the queue for none of these ends."""
    return all(end is not None and end.exit_code != SIGTERM_CODE for end in ends)


def end_of_node(job: SlurmJob | None, node: int, *, cancelled: str | None, has_started: bool) -> GangEnd:
    """End of a node whose keeper left none, once its job is over.

    Args:
        job: None: Slurm has forgotten it.
        node: Node rank.
        cancelled: Reason of a cancellation by gangline; None: there was none.
        has_started: The script of the job found the gang's folder.
    """
    number = job.number if job else "of the gang"
    if cancelled is not None:
        code, retry, words = CancelledError.exit_code, CancelledError.retry, f"cancelled: {cancelled}"
    elif job is not None and job.state in _NEXT_GANG:
        code, retry, said = _NEXT_GANG[job.state]
        words = f"job {number} {said}"
    elif job is not None and not has_started:
        code, retry = ConfigError.exit_code, ConfigError.retry
        words = (
            f"job {number} did not find the gang's folder on its servers: slurm.shared of site.toml wants a folder that"
            " all servers see, and gangline and its Python in one, too"
        )
    elif job is not None:
        code, retry = LostPeerError.exit_code, LostPeerError.retry
        words = f"job {number} ended as {job.state}, and the keeper of node {node} left no end"
    else:
        code, retry, words = SIGKILL_CODE, "same", f"Slurm has forgotten its job, and node {node} left no end"
    return GangEnd(exit_code=code, retry=retry, reason=words, time=now())


def with_earlier_lives(end: GangEnd, lives: Sequence[Sequence[GangEnd]]) -> GangEnd:
    """`end` with the seconds of the lives before it; each of them is a restart of the gang."""
    ledger = dict(end.ledger)
    for earlier in (each for life in lives for each in life):
        for cause, seconds in earlier.ledger.items():
            ledger[cause] = ledger.get(cause, 0.0) + seconds
    seconds = end.allocated_seconds + sum(each.allocated_seconds for life in lives for each in life)
    restarts = end.restarts + len(lives) + sum(max((each.restarts for each in life), default=0) for life in lives)
    return replace(end, ledger=ledger, allocated_seconds=seconds, restarts=restarts)


def stopped_retry(end: GangEnd) -> GangEnd:
    """An end by SIGTERM is free if it had saved: Slurm took the servers away."""
    if end.exit_code != SIGTERM_CODE:
        return end
    return replace(end, retry=retry_class(SIGTERM_CODE, saved=bool(end.saved_step)))
