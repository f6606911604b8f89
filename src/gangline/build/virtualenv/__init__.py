"""Virtual environments of commits on this machine: one for each lock, made by uv, cached by digest."""

from gangline.build.virtualenv.environments import (
    LockedCommit,
    UnusedEnvironment,
    VirtualEnvironment,
    environments_folder,
    find_environment,
    find_or_make_environment,
    make_environment,
    request_environment,
    sweep_environments,
)
from gangline.build.virtualenv.locks import CommitLock, read_commit_lock
from gangline.build.virtualenv.uv import Uv

__all__ = [
    "CommitLock", "LockedCommit", "UnusedEnvironment", "Uv", "VirtualEnvironment", "environments_folder",
    "find_environment", "find_or_make_environment", "make_environment", "read_commit_lock", "request_environment",
    "sweep_environments",
]  # fmt: skip
