"""Branches of a repository, of this clone and of `origin`, from git's output."""

from dataclasses import dataclass

LOCAL, REMOTE = "refs/heads/", "refs/remotes/origin/"


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch of this repository, or of `origin` as it was fetched last."""

    name: str
    """Without `refs/heads/` or `refs/remotes/origin/`."""
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
    """From lines `commit *ref`, where a blank means that it is not checked out; without what `origin/HEAD` names."""
    found = (
        (commit, mark_and_ref[:1], mark_and_ref[1:])
        for commit, _, mark_and_ref in (row.partition(" ") for row in rows.splitlines())
    )
    return tuple(
        Branch(ref.removeprefix(LOCAL if ref.startswith(LOCAL) else REMOTE), ref, commit, mark == "*")
        for commit, mark, ref in found
        if ref != f"{REMOTE}HEAD"
    )
