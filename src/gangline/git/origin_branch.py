"""Commit of a branch at the remote `origin`, as the remote says: asked now, or answered to a fetch minutes ago.

A build server fetches right before it asks, with a credential that its later steps do not have. Git writes what the
remote answered into `FETCH_HEAD`.
"""

import re
import time
from pathlib import Path
from typing import Literal

from gangline.errors import StorageError
from gangline.git.bounded_process import ProcessLimits
from gangline.git.branches import LOCAL
from gangline.git.command import GitTimeout, own_environment, run_git
from gangline.git.mirror import ORIGIN_IS_MIRROR
from gangline.git.repository import Repository
from gangline.git.repository_address import address_of

ASK_SECONDS = 5.0
FRESH_SECONDS = 600.0
"""Time for which the answer to a fetch counts."""
_FETCHED = re.compile(r"([0-9a-f]{40,64})\t(?:not-for-merge)?\tbranch '(.*)' of (.*)")
_ENVIRONMENT = {"GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh", "GIT_SSH_COMMAND": "ssh -o BatchMode=yes"}


def origin_kind(repository: Repository) -> Literal["none", "mirror", "remote"]:
    """What the remote `origin` is: none, a mirror on this machine that gangline fills, or another repository."""
    asked = ("config", "--local", "--get-regexp", rf"^(remote\.origin\.url|{re.escape(ORIGIN_IS_MIRROR.lower())})$")
    rows = run_git(repository.root, *asked).text.split("\n")
    if f"{ORIGIN_IS_MIRROR.lower()} true" in rows:
        return "mirror"
    return "remote" if any(rows) else "none"


def origin_branch(repository: Repository, branch: str) -> str | None:
    """Object name of the commit that `branch` has at `origin`; None: `origin` has no such branch.

    Raises:
        StorageError: It does not answer.
    """
    fetched = _fetched(repository)
    return fetched[branch] if branch in fetched else _asked(repository, branch)


def _fetched(repository: Repository) -> dict[str, str]:
    """Commits by branch of the last fetch from `origin`, if it is not older than `FRESH_SECONDS`."""
    asked = ("rev-parse", "--path-format=absolute", "--git-path", "FETCH_HEAD")
    file = Path(run_git(repository.root, *asked).text.strip("\n"))
    url = run_git(repository.root, "remote", "get-url", "origin").text.partition("\n")[0]
    if not file.is_file() or time.time() - file.stat().st_mtime > FRESH_SECONDS:
        return {}
    rows = map(_FETCHED.fullmatch, file.read_text("utf-8", "replace").split("\n"))
    return {row[2]: row[1] for row in rows if row and _bare(row[3]) == _bare(url)}


def _bare(url: str) -> str:
    """The address of a URL as it is in `FETCH_HEAD`, where it has no login and no ending."""
    return address_of(url.rstrip("/").removesuffix(".git"))


def _asked(repository: Repository, branch: str) -> str | None:
    limits, environ = ProcessLimits(seconds=ASK_SECONDS), own_environment(_ENVIRONMENT)
    ref = f"{LOCAL}{branch}"
    try:
        done = run_git(repository.root, "ls-remote", "--refs", "origin", ref, environ=environ, limits=limits)
    except GitTimeout as error:
        raise StorageError(f"origin did not answer within {ASK_SECONDS:.0f} s") from error
    if done.returncode:
        raise StorageError(f"origin does not answer: {done.message}")
    rows = dict(line.split("\t", 1)[::-1] for line in done.text.split("\n") if line)
    return rows.get(ref)
