"""Branch protection: which branches publish, whether a commit is part of one, and the rules of the default branch.

A line decides what is published and how it is judged, and everybody who may push a branch writes that branch's line.
Therefore the default branch gives these rules: a commit that is part of no publishing branch is judged by the gates of
the default branch, and no line can make its own branch publish.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.errors import ConfigError
from gangline.git.branches import Branch
from gangline.git.repository import Repository
from gangline.sanitize import shown_name
from gangline.spec.config.line import Line, PublishTable, TriggerTable
from gangline.spec.config.load import load_line_text
from gangline.spec.config.toml_text import MOST_BYTES
from gangline.spec.globs import any_matches


@dataclass(frozen=True, kw_only=True, slots=True)
class Protection:
    """Rules of the default branch for the commits of a repository."""

    branch: Branch | None
    """The default branch; None: this clone does not know it."""
    text: str | None
    """Its line.toml; None if there is no valid one."""
    publishes: tuple[str, ...]
    """Patterns of the branches that publish."""
    trigger: TriggerTable | None = None
    """`[trigger]` of its line; None if not known."""
    branches: tuple[Branch, ...] = ()
    """All that the repository has."""
    problem: str = ""
    """Why there are no rules."""
    lacks_line: bool = False
    """The default branch has no line.toml: its repository does not use gangline yet."""


def read_protection(repository: Repository) -> Protection:
    """The default branch as this clone knows it, and the rules of its line."""
    branches = repository.branches()
    branch, closed = repository.default_branch(branches), PublishTable().branches
    if branch is None:
        problem = (
            "this clone does not have the default branch of origin: git fetch origin, git remote set-head origin -a"
        )
        return Protection(branch=None, text=None, publishes=closed, branches=branches, problem=problem)
    try:
        found = _line_of(repository, branch)
    except ConfigError as error:
        problem = f"on {branch.shown}: {error}"
        return Protection(branch=branch, text=None, publishes=closed, branches=branches, problem=problem)
    if found is None:
        problem = f"on {branch.shown}, the default branch, there is no line.toml yet; push a commit with one to it"
        return Protection(
            branch=branch, text=None, publishes=closed, branches=branches, problem=problem, lacks_line=True
        )
    text, line = found
    return Protection(
        branch=branch, text=text, publishes=line.publish.branches, branches=branches, trigger=line.trigger
    )


def current_branch(branches: Sequence[Branch]) -> str | None:
    """Name of the one that is checked out; None when HEAD is detached."""
    return next((shown_name(each.name) for each in branches if each.is_current), None)


def is_protected(repository: Repository, commit: str, protection: Protection) -> bool:
    """Whether `commit` is part of a branch that publishes, by the history in git and not by a branch name given."""
    publishing = [each for each in protection.branches if any_matches(each.name, protection.publishes)]
    return protection.branch is not None and repository.is_part_of(commit, publishing)


def _line_of(repository: Repository, branch: Branch) -> tuple[str, Line] | None:
    tree = repository.tree_if_any(branch.commit)
    data = None if tree is None else repository.file(tree, "line.toml", most_bytes=MOST_BYTES)
    if data is None or tree is None:
        return None
    text = data.decode(errors="replace")
    return text, load_line_text(text, file="line.toml", reader=lambda path: repository.file(tree, path))
