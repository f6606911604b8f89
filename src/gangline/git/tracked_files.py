"""Commit that files are of, where git tracks all of them as they are."""

from collections.abc import Sequence
from pathlib import Path

from gangline.errors import GanglineError
from gangline.git.command import run_git

_MOST_FILES = 1000
"""Files that are named in one call of git."""


def commit_of_files(folder: Path, files: Sequence[Path]) -> str | None:
    """Newest commit that changed one of the files; None: one is not tracked, was changed since, or is in no work tree.

    It is the same in later commits that leave the files alone.
    """
    names = [str(path.resolve()) for path in files]
    if len(names) > _MOST_FILES:
        return None
    try:
        tracked = run_git(folder, "--literal-pathspecs", "ls-files", "--error-unmatch", "--", *names)
        changed = run_git(folder, "--literal-pathspecs", "status", "--porcelain", "--", *names)
        newest = run_git(folder, "--literal-pathspecs", "log", "-1", "--format=%H", "--", *names)
    except GanglineError:  # no git, or no answer in time: the origin is not known
        return None
    if tracked.returncode or changed.returncode or changed.stdout.strip() or newest.returncode:
        return None
    return newest.stdout.decode().strip() or None
