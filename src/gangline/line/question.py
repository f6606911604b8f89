"""What a run is asked: a commit (or the tree on disk) and its effective line. The same question has the same run id."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import ConfigError
from gangline.line import identity
from gangline.line.git import Repository
from gangline.line.tasks import check_task
from gangline.spec.line import Line
from gangline.spec.load import line_digest, load_line_text


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    repository: Repository
    commit: str
    tree: str
    """What is built: the commit's tree, or the one on disk."""
    is_dirty: bool
    branch: str | None
    subject: str
    line: Line

    def run_id(self, attempt: int) -> str:
        content = self.tree if self.is_dirty else self.commit
        return identity.run_id(
            self.line.project.name, self.commit, content=content, line=line_digest(self.line), attempt=attempt
        )


def ask(path: Path, *, commit: str | None, overrides: Sequence[str], strategy: str | None) -> Question:
    """Read the question that `path` asks; without `commit` that is HEAD with whatever was changed on disk.

    Raises:
        UsageError: No repository, no such commit.
        ConfigError: No line.toml in it, or one that does not hold.
    """
    repository = Repository.at(path)
    sha = repository.commit(commit or "HEAD")
    dirty = None if commit else repository.dirty_tree()
    tree = dirty or repository.tree(sha)
    chosen = (*overrides, f'train.strategy="{strategy}"') if strategy else tuple(overrides)
    line = _read_line(repository, tree, sha, chosen)
    return Question(
        repository=repository,
        commit=sha,
        tree=tree,
        is_dirty=dirty is not None,
        branch=repository.branch_holding(sha) if commit else repository.branch(),
        subject=repository.subject(sha),
        line=line,
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
