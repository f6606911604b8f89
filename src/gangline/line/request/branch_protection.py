"""Branch protection: which branches publish, whether a commit is part of one, and the rules of the default branch.

A line decides what is published and how it is judged, and everybody who may push a branch writes that branch's line.
Therefore the default branch gives these rules: a commit that is part of no publishing branch is judged by the gates of
the default branch, no line can make its own branch publish, and none can call itself another project.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.errors import ConfigError, StorageError
from gangline.git.branches import LOCAL, REMOTE, Branch
from gangline.git.repository import Repository
from gangline.sanitize import shown_name
from gangline.spec.config.line import Line, PublishTable, TriggerTable
from gangline.spec.config.load import load_line_text
from gangline.spec.config.toml_text import MOST_BYTES, read_toml
from gangline.spec.globs import any_matches

_FILE = "line.toml"


@dataclass(frozen=True, kw_only=True, slots=True)
class Protection:
    """Rules of the default branch for the commits of a repository."""

    branch: Branch | None
    """The default branch; None: this clone does not know it."""
    text: str | None
    """Its line.toml; None if there is no valid one."""
    project: str | None = None
    """Name that this line gives the project; None: there is no such line."""
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
        branch=branch, text=text, project=line.project.name, publishes=line.publish.branches, branches=branches,
        trigger=line.trigger,
    )  # fmt: skip


def current_branch(branches: Sequence[Branch]) -> str | None:
    """Name of the one that is checked out; None when HEAD is detached."""
    return next((shown_name(branch.name) for branch in branches if branch.is_current), None)


def is_protected(repository: Repository, commit: str, protection: Protection) -> bool:
    """Whether `commit` is part of a branch that publishes, by the history in git and not by a branch name given."""
    publishing = [branch for branch in protection.branches if any_matches(branch.name, protection.publishes)]
    return protection.branch is not None and repository.is_part_of(commit, publishing)


def named_branch_problem(repository: Repository, commit: str, branch: str, branches: Sequence[Branch]) -> str:
    """Why a branch that a driver was given does not count for publishing; empty where it is at a commit with `commit`.

    `origin` is asked. The service that fills a mirror on this machine has asked, and where there is no `origin`, the
    local branch counts.
    """
    from gangline.git.origin_branch import origin_branch, origin_kind  # a person names no branch

    kind = origin_kind(repository)
    if kind != "remote":
        known = [each for each in branches if each.ref == f"{REMOTE if kind == 'mirror' else LOCAL}{branch}"]
        return "" if repository.is_part_of(commit, known) else f"no branch {branch} of this repository has the commit"
    try:
        tip = origin_branch(repository, branch)
    except StorageError as error:
        return f"it is not known whether branch {branch} has the commit: {error}"
    if tip is None:
        return f"origin has no branch {branch}"
    if not repository.has(tip):
        return f"branch {branch} of origin is at {tip[:8]}, which is not here: git fetch origin"
    return "" if repository.is_ancestor(commit, tip) else f"branch {branch} of origin, at {tip[:8]}, lacks the commit"


def named_folders(repository: Repository, branch: Branch, project: str) -> list[str]:
    """Folders of the repository whose line has the name `project` at the tip of `branch`; its top is an empty name."""
    tree = repository.whole_tree(branch.commit)
    paths = [entry.path for entry in repository.entries(tree) if entry.path.rpartition("/")[2] == _FILE]
    texts = {path: repository.file(tree, path, most_bytes=MOST_BYTES) for path in paths}
    return [path.removesuffix(_FILE).strip("/") for path, text in texts.items() if _project_name(text) == project]


def _project_name(text: bytes | None) -> object:
    """Project name in a line.toml; None where it has none, or is no line."""
    try:
        table = read_toml((text or b"").decode(), file=_FILE).get("project")
    except (ConfigError, UnicodeDecodeError):
        return None
    return table.get("name") if isinstance(table, dict) else None


def _line_of(repository: Repository, branch: Branch) -> tuple[str, Line] | None:
    tree = repository.tree_if_any(branch.commit)
    data = None if tree is None else repository.file(tree, _FILE, most_bytes=MOST_BYTES)
    if data is None or tree is None:
        return None
    text = data.decode(errors="replace")
    return text, load_line_text(text, file=_FILE, reader=lambda path: repository.file(tree, path))
