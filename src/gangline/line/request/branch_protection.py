"""Protected branches of a repository, whether a commit is part of one, and the rules of the default branch's line.

A line decides what may be published and how it is judged, and everybody who may push a branch writes the line of that
branch. So these rules come from the default branch: a commit that is not part of a branch that publishes is judged by
the gates there, and no line makes its own branch one that publishes.
"""

from dataclasses import dataclass

from gangline.errors import ConfigError
from gangline.git.repository import Branch, Repository
from gangline.spec.config.line import Line, PublishTable, TriggerTable
from gangline.spec.config.load import load_line_text
from gangline.spec.config.toml_text import MOST_BYTES
from gangline.spec.globs import any_matches


@dataclass(frozen=True, kw_only=True, slots=True)
class Protection:
    """What the default branch says about a repository's commits."""

    branch: Branch | None
    """The default branch; None: this clone does not know it."""
    text: str | None
    """Of its line.toml; None where there is none that holds."""
    publishes: tuple[str, ...]
    """Patterns of the branches that publish."""
    trigger: TriggerTable | None = None
    """What of that line starts runs; None where it is not known."""
    trouble: str = ""
    """Why there are no rules."""


def read_protection(repository: Repository) -> Protection:
    """The default branch as this clone knows it, and the rules of its line."""
    branch, closed = repository.default_branch(), PublishTable().branches
    if branch is None:
        said = "this clone does not have the default branch of origin: git fetch origin, git remote set-head origin -a"
        return Protection(branch=None, text=None, publishes=closed, trouble=said)
    try:
        text, line = _line_of(repository, branch)
    except ConfigError as error:
        return Protection(branch=branch, text=None, publishes=closed, trouble=f"on {branch.shown}: {error}")
    return Protection(branch=branch, text=text, publishes=line.publish.branches, trigger=line.trigger)


def is_protected(repository: Repository, commit: str, protection: Protection) -> bool:
    """Is `commit` part of a branch that publishes, as git knows it? Whatever anybody calls its branch."""
    wanted = [each for each in repository.branches() if any_matches(each.name, protection.publishes)]
    return protection.branch is not None and repository.is_part_of(commit, wanted)


def _line_of(repository: Repository, branch: Branch) -> tuple[str, Line]:
    tree = repository.tree_if_any(branch.commit)
    data = None if tree is None else repository.file(tree, "line.toml", most_bytes=MOST_BYTES)
    if data is None or tree is None:
        raise ConfigError("there is no line.toml; git push a commit that has it to that branch")
    text = data.decode(errors="replace")
    return text, load_line_text(text, file="line.toml", reader=lambda path: repository.file(tree, path))
