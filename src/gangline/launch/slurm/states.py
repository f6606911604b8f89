"""State of a gang by what Slurm says of its job and its keepers in their files, and ends for nodes without. Pure.

Why a job waits is a sentence: Slurm's reason, the jobs before it and the start that Slurm expects.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

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

_FURTHEST = timedelta(days=300)
"""Slurm takes a job without a time limit for one of a year, so that a start behind it is not known."""
_WORDS = {
    "None": "Slurm has not looked at it yet",
    "Resources": "no servers are free",
    "ReqNodeNotAvail": "a server that it needs is down, drained or reserved",
    "PartitionDown": "the partition takes no jobs now; its administrator opens it",
    "PartitionInactive": "the partition starts no jobs now; its administrator opens it",
    "PartitionTimeLimit": "it wants more time than the partition allows; a smaller slurm.time_seconds works",
    "PartitionNodeLimit": "it wants more servers than the partition allows",
    "NodeDown": "a server that it needs is down",
    "Dependency": "another job has to end first",
    "DependencyNeverSatisfied": "the job that it waits for never ends well; cancel it",
    "BeginTime": "it was put back into the queue, and starts two minutes later at the soonest",
    "JobHeldUser": "it is held; scontrol release lets it start",
    "JobHeldAdmin": "an administrator holds it",
    "Licenses": "a license is in use",
    "Reservation": "its reservation has not begun",
    "BadConstraints": "no server has the features of slurm.constraint",
    "InvalidAccount": "its account may not run here; slurm.account names another",
    "InvalidQOS": "its account may not use this QOS; slurm.qos names another",
    "QOSNotAllowed": "the partition does not take this QOS; slurm.qos names another",
    "SystemFailure": "Slurm failed to start it",
    "RequeueHold": "it failed too often and is held; look at its servers, then scontrol release",
}
"""Words for reasons of Slurm that say what to do; others are shown as they are."""
_LIMITS = {
    "Minutes": "the hours of the account are used up",
    "MaxJobs": "as many jobs run as may",
    "GrpJobs": "as many jobs run as may",
    "Cpu": "as many cores are in use as may be",
    "Node": "as many servers are in use as may be",
    "GRES": "as many GPUs are in use as may be",
    "Mem": "as much memory is in use as may be",
}
"""What a limit of an account, association or QOS counts, by a part of its name."""


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
    for earlier in (gang_end for life in lives for gang_end in life):
        for cause, seconds in earlier.ledger.items():
            ledger[cause] = ledger.get(cause, 0.0) + seconds
    seconds = end.allocated_seconds + sum(gang_end.allocated_seconds for life in lives for gang_end in life)
    restarts = (
        end.restarts + len(lives) + sum(max((gang_end.restarts for gang_end in life), default=0) for life in lives)
    )
    return replace(end, ledger=ledger, allocated_seconds=seconds, restarts=restarts)


def stopped_retry(end: GangEnd) -> GangEnd:
    """An end by SIGTERM is free if it had saved: Slurm took the servers away."""
    if end.exit_code != SIGTERM_CODE:
        return end
    return replace(end, retry=retry_class(SIGTERM_CODE, saved=bool(end.saved_step)))


def waiting_sentence(job: SlurmJob, *, before: int = 0, now: datetime | None = None) -> str:
    """`Priority, 3 jobs before it · Slurm expects 14:50`; `now` decides whether the day is named."""
    parts = [_reason(job.reason)]
    if before and job.reason in ("Priority", "Resources"):
        parts[0] += f", {before} job{'s' if before > 1 else ''} before it"
    if expected := _time(job.starts, now or datetime.now()):  # noqa: DTZ005  # Slurm writes local times
        parts.append(f"Slurm expects {expected}")
    return " · ".join(parts)


def _reason(reason: str) -> str:
    """Slurm's own word first, so that it can be looked up."""
    word = reason.partition(",")[0].strip() or "None"
    if word.startswith(("QOS", "Assoc", "Max")) and word not in _WORDS:
        meaning = next((words for part, words in _LIMITS.items() if part in word), "a limit is reached")
        whose = "the account" if word.startswith("Assoc") else "the QOS" if word.startswith("QOS") else "this user"
        return f"{word}: {meaning}, a limit of {whose}"
    return f"{word}: {_WORDS[word]}" if word in _WORDS else word


def _time(text: str, now: datetime) -> str:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return ""
    if found - now > _FURTHEST:
        return ""
    return f"{found:%H:%M}" if found.date() == now.date() else f"{found:%d %b %H:%M}"
