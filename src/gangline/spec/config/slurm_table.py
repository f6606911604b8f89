"""`[slurm]` of a site as frozen data: how gangs are submitted to Slurm."""

from dataclasses import dataclass
from typing import Annotated

from gangline.spec.bounds import Bound


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmTable:
    """How gangs are submitted to Slurm, under `launch.target = "slurm"`."""

    shared: str | None = None
    """Absolute path of a folder that this machine and all servers see; required."""
    partition: str | None = None
    """Partition of the jobs; none: the default one."""
    account: str | None = None
    """Account that hours are booked on; none: the user's."""
    qos: str | None = None
    """Quality of service."""
    constraint: str | None = None
    """Features that servers must have."""
    time_seconds: int | None = None
    """Time limit of one life of a gang; none: the partition's."""
    options: tuple[str, ...] = ()
    """Further words of sbatch."""
    via: tuple[str, ...] = ()
    """Words before each command of Slurm, `["ssh", "login1"]`."""
    lives: Annotated[int, Bound(least=1), Bound(most=100)] = 3
    """How often a gang may be started, over time limits and preemption."""
    margin_seconds: Annotated[int, Bound(least=1), Bound(most=65_535)] = 60
    """Time between the signal to save and the time limit; sbatch takes 65,535 at most."""
