"""The post-receive hook of a bare repository: a few lines of shell that call gangline; a foreign one is kept.

Nothing of a push stands in it: git hands refs over by standard input, and gangline reads them there.
"""

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from gangline.errors import ConfigError, UsageError
from gangline.line.fetching import git
from gangline.line.places import writing

BEFORE = "post-receive.before-gangline"
"""Name that a hook gets which was there first, where it is kept and called."""
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
        ConfigError: Another hook stands there and is not to be chained.
        StorageError: It cannot be written.
    """
    path = _hooks_folder(repo) / "post-receive"
    before = path.with_name(BEFORE)
    with writing(path):
        path.parent.mkdir(exist_ok=True)
        if path.exists() and _MARK not in path.read_text("utf-8", "replace"):
            if not chain:
                raise ConfigError(
                    f"{path} is a hook of somebody else; --chain keeps it and calls it first, or call gangline from it:"
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
    done = git(repo, "rev-parse", "--is-bare-repository", "--absolute-git-dir")
    said = done.stdout.decode(errors="replace").splitlines()
    if done.returncode or said[0] != "true":
        raise UsageError(
            f"wanted a bare repository, found {repo}; git init --bare makes one, and in a clone `gangline run` does it"
        )
    return Path(said[1]) / "hooks"
