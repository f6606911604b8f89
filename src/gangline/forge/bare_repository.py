"""Bare repositories of this machine: the post-receive hook that calls gangline, and which refs of a push are built.

The hook is a few lines of shell and holds nothing of a push: git passes refs on standard input. A hook that was there
before is kept and called first.
"""

import re
import shlex
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import ConfigError, UsageError, storage_errors
from gangline.git.branches import is_branch
from gangline.git.remote import run_remote_git

MAX_LINES = 10_000
MAX_RUNS = 8
"""Runs that one push starts: a mirror that is pushed for the first time brings every branch it ever had."""
_LINE = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64}) ([0-9a-f]{40}|[0-9a-f]{64}) (refs/[^\n]{1,4000})\n?")


@dataclass(frozen=True, slots=True)
class Push:
    """A branch that was moved to another commit."""

    branch: str
    commit: str
    old: str | None
    """Its commit before; None: it is new."""

    @property
    def ref(self) -> str:
        """Full name of its branch."""
        return f"refs/heads/{self.branch}"


def read_pushes(lines: Iterable[str]) -> list[Push]:
    """Branches that were created or moved; tags, deletions and other refs are not built.

    Raises:
        UsageError: A line that no git writes; or more than anybody pushes.
    """
    pushes: list[Push] = []
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match is None or number > MAX_LINES:
            raise UsageError(
                f"wanted `old new ref` lines as git writes them, at most {MAX_LINES}, found {line[:80]!r} at {number};"
                " git calls `gangline hook post-receive` itself, once `gangline hook install` has put it there"
            )
        old, new, ref = match.groups()
        if ref.startswith("refs/heads/") and set(new) != {"0"}:
            pushes.append(Push(ref.removeprefix("refs/heads/"), new, None if set(old) == {"0"} else old))
    return pushes


def choose_pushes(pushes: Sequence[Push]) -> tuple[list[Push], list[Push]]:
    """(those to build, those left out): of several branches at one commit the first, and only so many."""
    by_commit: dict[str, Push] = {}
    for push in sorted(pushes, key=lambda push: not is_branch(push.branch)):
        by_commit.setdefault(push.commit, push)
    wanted = sorted(by_commit.values(), key=lambda push: push.old is None)  # moved branches first
    return wanted[:MAX_RUNS], wanted[MAX_RUNS:]


BEFORE = "post-receive.before-gangline"
"""New name of an existing hook that is kept and called."""
_MARK = "# Written by gangline hook install"
_ALONE = """\
#!/bin/sh
{mark}; delete this file to end it.
exec {command}
"""
_CHAINED = """\
#!/bin/sh
{mark}; the hook that was here before is {before} and comes first.
refs=$(cat)
here=$(dirname "$0")
printf '%s\\n' "$refs" | "$here/{before}" "$@"
printf '%s\\n' "$refs" | {command}
"""


def install_hook(repo: Path, command: Sequence[str], *, chain: bool) -> Path:
    """Write the hook that runs `command` for every push; renew one of ours.

    Args:
        repo: A bare repository.
        command: Argument vector; it gets the refs of a push by standard input.
        chain: Keep a hook that is there and call it first.

    Raises:
        UsageError: No bare repository.
        ConfigError: There is another hook, and it is not to be chained.
        StorageError: It cannot be written.
    """
    path = _hooks_folder(repo) / "post-receive"
    before = path.with_name(BEFORE)
    with storage_errors(path):
        path.parent.mkdir(exist_ok=True)
        if path.exists() and _MARK not in path.read_text("utf-8", "replace"):
            if not chain:
                raise ConfigError(
                    f"{path}is not a hook of gangline; --chain keeps it and calls it first, or call gangline from it:"
                    f" {shlex.join(command)}"
                )
            path.rename(before)
        text = _CHAINED if before.exists() else _ALONE
        fresh = path.with_name(".post-receive.fresh")
        fresh.write_text(text.format(mark=_MARK, before=BEFORE, command=shlex.join(command)), "utf-8")
        fresh.chmod(0o755)
        fresh.rename(path)
    return path


def _hooks_folder(repo: Path) -> Path:
    if not repo.is_dir() or shutil.which("git") is None:
        raise UsageError(f"wanted a bare git repository (and git), found {'no git' if repo.is_dir() else 'no folder'}")
    done = run_remote_git(repo, "rev-parse", "--is-bare-repository", "--absolute-git-dir")
    said = done.text.splitlines()
    if done.returncode or said[0] != "true":
        raise UsageError(
            f"wanted a bare repository, found {repo}; git init --bare makes one, and in a clone `gangline run` does it"
        )
    return Path(said[1]) / "hooks"
