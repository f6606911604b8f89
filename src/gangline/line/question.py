"""What a run is asked: a commit (or the tree on disk) and its effective line. The same question has the same run id."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import ConfigError
from gangline.line import identity
from gangline.line.git import Repository
from gangline.line.strangers import shown_name
from gangline.line.tasks import check_task
from gangline.spec.line import Line
from gangline.spec.load import line_digest, load_line_text
from gangline.spec.record import Trust


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Where a commit comes from, as far as its checkout cannot tell."""

    branch: str | None = None
    """Text of a stranger, maybe."""
    pull_request: int | None = None
    trust: Trust = "own"


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What a run answers; equal questions have one run."""

    repository: Repository
    commit: str
    tree: str
    """What is built: the commit's tree, or the one on disk."""
    is_dirty: bool
    branch: str | None
    subject: str
    line: Line
    pull_request: int | None = None
    trust: Trust = "own"

    def run_id(self, attempt: int) -> str:
        """A fork's question is another one, though the commit be the same."""
        content = self.tree if self.is_dirty else self.commit
        content = f"fork:{content}" if self.trust == "fork" else content
        return identity.run_id(
            self.line.project.name, self.commit, content=content, line=line_digest(self.line), attempt=attempt
        )


def ask(
    path: Path,
    *,
    commit: str | None,
    overrides: Sequence[str],
    strategy: str | None,
    origin: Origin | None = None,
) -> Question:
    """Read the question that `path` asks; without `commit` that is HEAD with whatever was changed on disk.

    `origin` tells where the commit comes from; without it git is asked for the branch, and the commit is our own.

    Raises:
        UsageError: No repository, no such commit.
        ConfigError: No line.toml in it, or one that does not hold.
    """
    repository = Repository.at(path)
    sha = repository.commit(commit or "HEAD")
    dirty = None if commit else repository.dirty_tree()
    tree = dirty or repository.tree(sha)
    came = origin or Origin()
    found = repository.branch_holding(sha) if commit else repository.branch()
    chosen = (*overrides, f'train.strategy="{strategy}"') if strategy else tuple(overrides)
    line = _read_line(repository, tree, sha, chosen)
    return Question(
        repository=repository,
        commit=sha,
        tree=tree,
        is_dirty=dirty is not None,
        branch=shown_name(came.branch) if came.branch else found,
        subject=repository.subject(sha),
        line=line,
        pull_request=came.pull_request,
        trust=came.trust,
    )


def _read_line(repository: Repository, tree: str, commit: str, overrides: Sequence[str]) -> Line:
    text = repository.file(tree, "line.toml")
    if text is None:
        raise ConfigError(
            f"wanted line.toml in {repository.root}, found none in commit {commit[:8]};"
            " gangline new NAME makes a repository that has one"
        )
    try:
        decoded = text.decode()
    except UnicodeDecodeError as error:
        raise ConfigError("line.toml: wanted UTF-8 text, found other bytes; save the file as UTF-8") from error

    def reader(path: str) -> bytes | None:
        return repository.file(tree, path)

    line = load_line_text(decoded, file="line.toml", overrides=overrides, reader=reader)
    check_task(line.project.task, reader)
    return line
