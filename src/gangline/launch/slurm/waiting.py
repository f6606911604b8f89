"""Why a job waits, as a sentence: Slurm's reason, the jobs before it and the start that Slurm expects. Pure."""

from datetime import datetime, timedelta

from gangline.launch.slurm.commands import SlurmJob

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
