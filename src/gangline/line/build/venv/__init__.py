"""The environment of a commit on this machine: a virtual environment for each lock, made by uv, kept by digest."""

from gangline.line.build.venv.kept import FOLDER, Environment, Unused, find_kept, keep_environment, sweep_environments
from gangline.line.build.venv.kept import ask as ask_environment
from gangline.line.build.venv.locks import Lock, read_commit_lock
from gangline.line.build.venv.uv import Uv

__all__ = [
    "FOLDER", "Environment", "Lock", "Unused", "Uv", "ask_environment", "find_kept", "keep_environment",
    "read_commit_lock", "sweep_environments",
]  # fmt: skip
