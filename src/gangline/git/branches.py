"""Branches: which names git takes for one, and those of a repository and of its `origin`, from git's output."""

import os
import re
from dataclasses import dataclass

from gangline.errors import UsageError
from gangline.sanitize import shown_name

LOCAL, REMOTE = "refs/heads/", "refs/remotes/origin/"
MAX_REF_BYTES = 1000
_REF_PATH = re.compile(
    r"(?!/)(?!.*(?:\.\.|//|@\{|/\.|\.lock(?:/|\Z)))(?!\.)[^\x00-\x20\x7f~^:?*\[\\]+(?<![/.])\Z", re.DOTALL
)


def is_ref_path(text: str) -> bool:
    """Whether `text` may follow `refs/`, by the rules of `git check-ref-format`; at most `MAX_REF_BYTES` in UTF-8."""
    return _REF_PATH.match(text) is not None and len(text.encode("utf-8", "surrogateescape")) <= MAX_REF_BYTES


def is_branch(name: str) -> bool:
    """Whether git takes `name` for a branch, as `git check-ref-format --branch` says; `HEAD` is none."""
    return is_ref_path(name) and not name.startswith("-") and name != "HEAD"


def check_branch(name: str) -> str:
    """`name`, once it is one of a branch that people can read.

    Raises:
        UsageError: Git takes no branch of that name, or some of its characters do not show.
    """
    if not is_branch(name):
        wanted = "a name that git takes for a branch (git check-ref-format --branch)"
    elif shown_name(name) is None:
        wanted = "a branch whose name shows all of its characters"
    else:
        return name
    raise UsageError(f"wanted {wanted}, found {ascii(name)[:80]}; push the commit to a branch of another name")


def local_branch(ref: bytes) -> str:
    """Name of a local branch from its ref; the short form of git begins otherwise where a tag has the same name."""
    return os.fsdecode(ref).strip("\n").removeprefix(LOCAL)


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch of this repository, or of `origin` as it was fetched last."""

    name: str
    """Name without `refs/heads/` or `refs/remotes/origin/`."""
    ref: str
    commit: str
    is_current: bool = False
    """It is checked out in this work tree."""

    @property
    def shown(self) -> str:
        """`main`, or `origin/main`, as git writes them."""
        return f"origin/{self.name}" if self.ref.startswith(REMOTE) else self.name


BRANCH_ROW = "%(objectname) %(HEAD)%(refname)"
"""Format of `git for-each-ref` that `read_branches` takes."""


def read_branches(rows: str) -> tuple[Branch, ...]:
    """Parse lines `commit *ref`, where a blank means that it is not checked out; leave out what `origin/HEAD` names."""
    found = (
        (commit, mark_and_ref[:1], mark_and_ref[1:])
        for commit, _, mark_and_ref in (row.partition(" ") for row in rows.split("\n"))
    )
    return tuple(
        Branch(ref.removeprefix(LOCAL if ref.startswith(LOCAL) else REMOTE), ref, commit, mark == "*")
        for commit, mark, ref in found
        if ref not in ("", f"{REMOTE}HEAD")
    )
