"""Launchers of gangs, and the targets that name them: what other code depends on where ranks run."""

from dataclasses import dataclass
from typing import Literal

RanksAt = Literal["local", "kubernetes", "slurm"]
"""Launcher of a run's gangs."""
Target = Literal["local", "kubernetes", "slurm", "kfp", "kfp-local"]
"""Where ranks run and what drives the stages."""
Driving = Literal["here", "kfp-local", "kfp"]
"""What drives the stages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LauncherTraits:
    """What other code depends on; without pods, ranks run in an environment that this machine makes."""

    is_here: bool = False
    """Ranks are processes of the driver's machine: signals and Ctrl-C reach them, its sandbox holds them."""
    has_pods: bool = False
    """Ranks are in pods of a cluster: they need an image and the resources of `[pod]`; its API server knows them."""
    has_jobs: bool = False
    """Gangs are jobs of Slurm, in a folder that all servers see; `[slurm]` says how they are submitted."""


LAUNCHERS: dict[RanksAt, LauncherTraits] = {
    "local": LauncherTraits(is_here=True),
    "kubernetes": LauncherTraits(has_pods=True),
    "slurm": LauncherTraits(has_jobs=True),
}
TARGETS: dict[str, tuple[RanksAt, Driving]] = {
    "local": ("local", "here"),
    "kubernetes": ("kubernetes", "here"),
    "slurm": ("slurm", "here"),
    "kfp-local": ("local", "kfp-local"),
    "kfp": ("kubernetes", "kfp"),
}
"""Where ranks run, and what drives the stages, by `Target`."""
