"""One job a gang, however many drivers start it and wherever they die: a job is held until it is known to be the one.

A driver submits a held job, then looks for jobs of that name: the one with the lowest number is the gang's, all others
are cancelled before they ever ran. Its number is written down before it is released, so that a driver that looks when
the job is over finds the number instead.
"""

from collections.abc import Callable
from typing import Protocol

from gangline.launch.slurm.commands import SlurmAway, SlurmJob


class JobQueue(Protocol):
    """What adoption asks of Slurm."""

    def named(self, name: str) -> list[SlurmJob]:
        """Jobs of this user with this name that are not over, in the order of their numbers."""
        ...

    def release(self, number: str) -> None:
        """Let a held job start; no effect on any other."""
        ...

    def cancel(self, number: str) -> None:
        """End a job; no effect on one that is over."""
        ...


def find_jobs(queue: JobQueue, name: str, comment: str) -> list[SlurmJob]:
    """Jobs of the gang with this comment, which names its folder and PodSet, in the order of their numbers."""
    return [job for job in queue.named(name) if job.comment == comment]


def start_job(
    queue: JobQueue, name: str, comment: str, *, submit: Callable[[], str], known: Callable[[], str | None],
    note: Callable[[str], None],
) -> str:  # fmt: skip
    """Number of the job of the gang, which is released; a lost answer or a dead driver leaves no second one.

    Args:
        queue: Slurm.
        name: Of the gang and its job.
        comment: As in `find_jobs`.
        submit: Submits a held job of that name and comment; returns its number.
        known: Reads the number that a driver has written down; None: none has.
        note: Writes the number of the job down, durably.

    Raises:
        SlurmAway: Slurm does not answer; the next call continues.
    """
    jobs = find_jobs(queue, name, comment)
    if not jobs and (number := known()) is not None:
        return number
    if not jobs:
        try:
            own = submit()
        except SlurmAway:  # the job may exist, held
            jobs = find_jobs(queue, name, comment)
            if not jobs:
                raise
        else:
            jobs = find_jobs(queue, name, comment) or [SlurmJob(number=own, state="PENDING", comment=comment)]
    number = known() or jobs[0].number
    for other in jobs:
        if other.number != number:
            queue.cancel(other.number)
    note(number)
    if number in {job.number for job in jobs if job.state == "PENDING"}:
        queue.release(number)
    return number
