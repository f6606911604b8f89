"""Request of a run: a commit (or the tree on disk) and its effective line. Equal requests have the same run id."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import ConfigError
from gangline.git.repository import Repository
from gangline.line.request.branch_protection import Protection, current_branch, is_protected, read_protection
from gangline.line.request.kept_home import KeptHome
from gangline.line.request.task_check import MOST_MODULE_BYTES, check_task
from gangline.sanitize import clean, shown_name
from gangline.spec import identity
from gangline.spec.config.line import Line
from gangline.spec.config.load import HOW_TO_BEGIN, line_digest, load_line_text
from gangline.spec.config.toml_text import MOST_BYTES
from gangline.spec.record import CommitInfo, Trust

CLEAN_TREE = "git add and git commit what belongs to it, .gitignore what does not, or git stash -u"
"""How a user cleans a dirty tree."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitOrigin:
    """Where a commit comes from, which its checkout does not say."""

    branch: str | None = None
    """Untrusted text of a forge event."""
    pull_request: int | None = None
    trust: Trust = "own"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """What a run is asked to do; equal requests have the same run."""

    repository: Repository
    commit: str
    tree: str
    """Tree that is built: that of the commit, or the one on disk."""
    is_dirty: bool
    branch: str | None
    subject: str
    line: Line
    """With the rules of the protected branch, then the overrides."""
    pull_request: int | None = None
    trust: Trust = "own"
    protected: bool = False
    rules: str | None = None
    """Commit of the protected branch whose rules the line has; None: its own."""
    overrides: tuple[str, ...] = ()
    rules_problem: str = ""
    """Why the rules of the default branch are not known."""
    lacks_line: bool = False
    """They are not, because that branch has no line.toml yet."""

    @property
    def commit_identity(self) -> CommitInfo:
        """The fields of the commit that make the run id."""
        patch = "dirty" if self.is_dirty else None
        return CommitInfo(sha=self.commit, tree=self.tree, trust=self.trust, protected=self.protected, patch=patch)

    @property
    def kept_home(self) -> KeptHome | None:
        """Home of the commit's code, as its run has it."""
        if self.trust == "fork":
            return None
        return KeptHome(branch=self.branch, may_publish=self.protected and not (self.is_dirty or self.overrides))

    @property
    def dirty_note(self) -> str:
        """Warning that a run of a dirty tree is not published, and how to clean it; empty for a clean tree."""
        if not self.is_dirty:
            return ""
        changed, untracked = self.repository.uncommitted()
        kinds = ((len(changed), "changed"), (len(untracked), "untracked"))
        counts = ", ".join(f"{number} {kind}" for number, kind in kinds if number)
        example = f" ({counts}, e.g. {clean((*changed, *untracked)[0], limit=100)})" if counts else ""
        return f"this run will not be published: the tree is dirty{example}; {CLEAN_TREE}"

    def run_id(self, attempt: int) -> str:
        """Id of an attempt; equal for every driver with an equal request."""
        project, digest = self.line.project.name, line_digest(self.line)
        return identity.run_id(project, self.commit_identity, line=digest, attempt=attempt)


def resolve_request(
    path: Path,
    *,
    commit: str | None,
    overrides: Sequence[str],
    strategy: str | None,
    origin: CommitOrigin | None = None,
) -> RunRequest:
    """The request for a run of the line in `path`; without `commit` that is HEAD with the changes on disk.

    Without `origin` the branch is read from git and the commit counts as the repository's own.

    Raises:
        UsageError: No repository, no such commit.
        ConfigError: No line.toml in the commit, or an invalid one.
    """
    repository = Repository.at(path)
    sha = repository.commit(commit or "HEAD")
    dirty = None if commit else repository.dirty_tree()
    tree = dirty or repository.tree(sha)
    origin = origin or CommitOrigin()
    all_overrides = (*overrides, f'train.strategy="{strategy}"') if strategy else tuple(overrides)
    protection = read_protection(repository)
    branch = repository.branch_holding(sha) if commit else current_branch(protection.branches)
    protected = origin.trust == "own" and dirty is None and is_protected(repository, sha, protection)
    rules = protection if dirty is None and not protected and protection.text is not None else None
    line = _read_line(repository, tree, sha, rules, all_overrides)
    return RunRequest(
        repository=repository,
        commit=sha,
        tree=tree,
        is_dirty=dirty is not None,
        branch=shown_name(origin.branch) if origin.branch else branch,
        subject=repository.subject(sha),
        line=line,
        pull_request=origin.pull_request,
        trust=origin.trust,
        protected=protected,
        rules=rules.branch.commit if rules and rules.branch else None,
        overrides=all_overrides,
        rules_problem="" if protected or dirty else protection.problem,
        lacks_line=protection.lacks_line,
    )


def _read_line(
    repository: Repository, tree: str, commit: str, rules: Protection | None, overrides: Sequence[str]
) -> Line:
    text = repository.file(tree, "line.toml", most_bytes=MOST_BYTES)
    if text is None:
        raise ConfigError(f"wanted line.toml in {repository.root}, found none in commit {commit[:8]}; {HOW_TO_BEGIN}")
    try:
        decoded = text.decode()
    except UnicodeDecodeError as error:
        raise ConfigError("line.toml: wanted UTF-8 text, found other bytes; save the file as UTF-8") from error

    def reader(path: str) -> bytes | None:
        return repository.file(tree, path)

    line = load_line_text(
        decoded, file="line.toml", rules=rules.text if rules else None, overrides=overrides, reader=reader
    )

    def module(path: str) -> bytes | None:
        return repository.file(tree, path, most_bytes=MOST_MODULE_BYTES)

    check_task(line.project.task, module, path=line.project.path, optimizer=line.optimizer)
    return line
