"""The one runner of git: argument vector, closed environment, limits, and one error.

Hooks, the file system monitor, pagers, prompts and colours are off, and what a surrounding git set in the environment
does not count. `own_environment` is for a repository of the user, whose configuration counts; `remote` has the one for
repositories of others.
"""

import json
import os
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gangline.errors import GanglineError, NotInstalledError, StorageError, UsageError
from gangline.git.bounded_process import ProcessLimits, ProcessResult, ProcessTimeout, run_bounded, stream_bounded
from gangline.sanitize import clean

LIMITS = ProcessLimits(seconds=120.0)
_SETTINGS = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "submodule.recurse=false",
             "-c", "core.quotePath=false", "-c", "color.ui=false", "-c", "core.pager=cat")  # fmt: skip
UNREPLACED = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": os.devnull}
"""A name is that of its object: without it, `git replace` gives a commit other files under its own name."""
_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_PAGER": "cat", "LC_ALL": "C.UTF-8", **UNREPLACED,
}  # fmt: skip


class GitFailed(StorageError):
    """git could not do what its arguments ask for; the text has the first lines of its complaint."""


class GitTimeout(GitFailed):
    """git did not end within its time limit."""


@dataclass(frozen=True, slots=True)
class GitResult:
    """Exit code and output of a git process that ended."""

    returncode: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output; bytes that are no UTF-8 are replaced."""
        return self.stdout.decode(errors="replace")

    @property
    def message(self) -> str:
        """What git complained of, as one line without control characters."""
        return _message(self.stderr, self.returncode)


def own_environment(extra: Mapping[str, str] | None = None, objects: Sequence[Path] = ()) -> dict[str, str]:
    """Environment of git in a repository of the user: that of this process without `GIT_*`, and `extra`.

    Git also finds the objects in the folders `objects`, of other repositories. The environment is read here because git
    inherits it, like every child process: HOME, PATH and the agent of ssh are in it.
    """
    quoted = (json.dumps(str(path), ensure_ascii=False) for path in objects)  # a path may hold the separator
    others = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(quoted)} if objects else {}
    return {**inherited_environment(), **_ENVIRONMENT, **others, **(extra or {})}


def inherited_environment(kept: tuple[str, ...] = ()) -> dict[str, str]:
    """This process's environment without what a surrounding git set; `kept` are names that stay."""
    return {key: value for key, value in os.environ.items() if not key.startswith("GIT_") or key in kept}


def run_git(
    folder: Path,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    limits: ProcessLimits = LIMITS,
) -> GitResult:
    """Run git in `folder`, whatever it ends with.

    Args:
        folder: Working directory.
        arguments: The subcommand and its arguments.
        environ: The whole environment; None: `own_environment`.
        settings: Values of git's configuration for this process alone.
        limits: Of the process and all that it starts.

    Raises:
        GitTimeout: It took longer than `limits.seconds`.
        OutputTooLarge: It wrote more than `limits.most_bytes`.
        ProcessStopped: `limits.is_over`.
        NotInstalledError: git is not installed.
    """
    command = _command(arguments, settings)
    try:
        done = run_bounded(
            command, name=f"git {arguments[0]}", folder=folder, environ=environ or own_environment(), bounds=limits
        )
    except ProcessTimeout as error:
        raise GitTimeout(f"{error}; does the disk or the other server respond?") from error
    except FileNotFoundError as error:
        raise _not_found(error) from error
    return GitResult(done.returncode, done.stdout, done.stderr)


def git_output(
    folder: Path,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    limits: ProcessLimits = LIMITS,
) -> bytes:
    """Standard output of git; arguments and errors as of `run_git`, and GitFailed for an exit code other than 0."""
    done = run_git(folder, *arguments, environ=environ, settings=settings, limits=limits)
    if done.returncode:
        raise GitFailed(f"git {arguments[0]} failed in {folder}: {done.message}")
    return done.stdout


def stream_git(
    folder: Path,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    limits: ProcessLimits = LIMITS,
    stdin: IO[bytes] | None = None,
) -> Generator[bytes]:
    """Standard output of git piece by piece; a generator that is closed ends git. Errors as of `git_output`."""
    ended = ProcessResult()
    try:
        yield from stream_bounded(
            _command(arguments, None), name=f"git {arguments[0]}", folder=folder, environ=environ or own_environment(),
            bounds=limits, ended=ended, stdin=stdin,
        )  # fmt: skip
    except ProcessTimeout as error:
        raise GitTimeout(f"{error}; does the disk or the other server respond?") from error
    if ended.code:
        raise GitFailed(f"git {arguments[0]} failed in {folder}: {_message(ended.stderr, ended.code)}")


def _command(arguments: tuple[str, ...], settings: Mapping[str, str] | None) -> list[str]:
    own = [word for key, value in (settings or {}).items() for word in ("-c", f"{key}={value}")]
    return ["git", *_SETTINGS, *own, *arguments]


def _message(complaint: bytes, code: int) -> str:
    return clean(complaint.decode(errors="replace"), limit=400) or f"exit {code}"


def _not_found(error: FileNotFoundError) -> GanglineError:
    if error.filename == "git":
        return NotInstalledError(
            "wanted git on the PATH, found none; install git, in an image of tasks as on a machine"
        )
    return UsageError(f"wanted a folder to run git in, found no folder {error.filename}")
