"""Virtual environments of commits on this machine: one for each lock, made by uv, cached by digest."""

from gangline.build.venv.environments import FOLDER, VirtualEnvironment, UnusedEnvironments, find_environment, make_environment, sweep_environments
from gangline.build.venv.environments import request_environment as ask_environment
from gangline.build.venv.locks import CommitLock, read_commit_lock
from gangline.build.venv.uv import Uv

__all__ = [
    "FOLDER", "VirtualEnvironment", "CommitLock", "UnusedEnvironments", "Uv", "ask_environment", "find_environment", "make_environment",
    "read_commit_lock", "sweep_environments",
]  # fmt: skip
