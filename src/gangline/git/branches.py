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

    @property
    def shown(self) -> str:
        """`main`, or `origin/main`, as git writes them."""
        return f"origin/{self.name}" if self.ref.startswith(REMOTE) else self.name


def read_branches(rows: str) -> tuple[Branch, ...]:
    """From lines `commit ref`, without the one that `origin/HEAD` stands for."""
    found = (row.partition(" ") for row in rows.splitlines())
    return tuple(
        Branch(ref.removeprefix(LOCAL if ref.startswith(LOCAL) else REMOTE), ref, commit)
        for commit, _, ref in found
        if ref != f"{REMOTE}HEAD"
    )
