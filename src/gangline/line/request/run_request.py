"""Request of a run: a commit (or the tree on disk) and its effective line. Equal requests have the same run id.

The task of a line is checked by its source: whether it exists and builds its own optimizer. User code is not imported.
"""

import ast
import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangline.errors import ConfigError
from gangline.git.branches import check_branch
from gangline.git.repository import Repository
from gangline.line.request.branch_protection import (
    Protection,
    current_branch,
    is_protected,
    named_branch_problem,
    read_protection,
)
from gangline.line.request.trust import KeptHome
from gangline.sanitize import clean, shown_name
from gangline.spec import identity
from gangline.spec.config.line import Line
from gangline.spec.config.load import HOW_TO_BEGIN, PROJECT_NAME, PROTECTED_TABLES, line_digest, load_line_text
from gangline.spec.config.optimizer import read_optimizer
from gangline.spec.config.toml_text import MOST_BYTES, read_toml
from gangline.spec.globs import any_matches
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
    """The line with the rules of the protected branch, then the overrides."""
    pull_request: int | None = None
    trust: Trust = "own"
    protected: bool = False
    rules: str | None = None
    """Commit of the protected branch whose rules the line has; None: its own."""
    overrides: tuple[str, ...] = ()
    rules_problem: str = ""
    """Why the rules of the default branch are not known."""
    branch_problem: str = ""
    """Why the branch that a driver named does not count for publishing."""
    protection: Protection
    """Default branch of the repository, with its rules."""
    own_name: str | None
    """Name that the commit's own line gives the project; None: none."""

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
        UsageError: No repository, no such commit, or no name of a branch.
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
    named, branch_problem = _named_branch(origin), ""
    if protected and named is not None and any_matches(named, protection.publishes):
        branch_problem = named_branch_problem(repository, sha, named, protection.branches)
        protected = not branch_problem
    rules = protection if dirty is None and not protected and protection.text is not None else None
    ruled = PROTECTED_TABLES if rules else (PROJECT_NAME,)
    text = _line_text(repository, tree, sha)
    line = _read_line(repository, tree, text, rules=protection.text, ruled=ruled, overrides=all_overrides)
    return RunRequest(
        repository=repository,
        commit=sha,
        tree=tree,
        is_dirty=dirty is not None,
        branch=named if origin.branch else branch,
        subject=repository.subject(sha),
        line=line,
        pull_request=origin.pull_request,
        trust=origin.trust,
        protected=protected,
        rules=rules.branch.commit if rules and rules.branch else None,
        overrides=all_overrides,
        rules_problem="" if protected or dirty else protection.problem,
        branch_problem=branch_problem,
        protection=protection,
        own_name=read_toml(text, file="line.toml")["project"].get("name"),
    )


def _named_branch(origin: CommitOrigin) -> str | None:
    """The branch that a driver named; of a fork, who names branches as they like, None where it cannot be read."""
    if not origin.branch:
        return None
    return check_branch(origin.branch) if origin.trust == "own" else shown_name(origin.branch)


def _line_text(repository: Repository, tree: str, commit: str) -> str:
    text = repository.file(tree, "line.toml", most_bytes=MOST_BYTES)
    if text is None:
        raise ConfigError(f"wanted line.toml in {repository.root}, found none in commit {commit[:8]}; {HOW_TO_BEGIN}")
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise ConfigError("line.toml: wanted UTF-8 text, found other bytes; save the file as UTF-8") from error


def _read_line(
    repository: Repository, tree: str, text: str, *, rules: str | None, ruled: Sequence[str], overrides: Sequence[str]
) -> Line:
    if any(override.partition("=")[0].strip() == PROJECT_NAME for override in overrides):
        raise ConfigError(
            f"--set: {PROJECT_NAME} says whose runs and models a run may use, and line.toml of the default branch says"
            " it; commit the name there"
        )

    def reader(path: str) -> bytes | None:
        return repository.file(tree, path)

    line = load_line_text(text, file="line.toml", rules=rules, ruled=ruled, overrides=overrides, reader=reader)

    def module(path: str) -> bytes | None:
        return repository.file(tree, path, most_bytes=MOST_MODULE_BYTES)

    check_task(line.project.task, module, path=line.project.path, optimizer=line.optimizer)
    return line


MOST_MODULE_BYTES = 500_000
"""Size limit of the module of a task."""


def check_task(
    task: str | None, reader: Callable[[str], bytes | None], *, path: Sequence[str] = (),
    optimizer: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Raise ConfigError for a `module:Class` that is not in the tree, or an invalid `[optimizer]`.

    The message names what was searched for and the nearest name that exists.
    """
    if task is None:
        return
    module, _, name = task.partition(":")
    stem = module.replace(".", "/")
    files = [f"{root}{stem}{end}" for root in ("", *(f"{each}/" for each in path)) for end in (".py", "/__init__.py")]
    found = next(((file, text) for file in files if (text := reader(file)) is not None), None)
    if found is None:
        in_src = any(reader(f"src/{stem}{end}") is not None for end in (".py", "/__init__.py"))
        advice = 'project.path = ["src"] finds the one in src' if in_src else "add it"
        raise ConfigError(
            f"line.toml: project.task: wanted {task!r}, found neither {files[0]} nor {files[1]}; {advice}"
        )
    file, text = found
    names = _names(file, text)
    if name not in names and "*" not in names:
        near = difflib.get_close_matches(name, names, n=1)
        advice = f"write {module}:{near[0]}" if near else f"its classes: {', '.join(_classes(text)[:8]) or 'none'}"
        raise ConfigError(f"line.toml: project.task: wanted {name} in {file}, found no such name; {advice}")
    if optimizer and _uses_line_optimizer(text, name):
        read_optimizer(optimizer)


def _uses_line_optimizer(text: bytes, name: str) -> bool:
    """Whether certainly neither the class nor a base, all of this module, defines `build_optimizer`."""
    if b"build_optimizer" in text:
        return False
    classes = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
    waiting, seen = [name], set[str]()
    while waiting:
        class_def = classes.get(each := waiting.pop())
        if class_def is None or class_def.keywords or class_def.decorator_list:
            return False
        seen.add(each)
        bases = [base.id if isinstance(base, ast.Name) else "" for base in class_def.bases]
        waiting += [base for base in bases if base not in seen]
    return True


def _classes(text: bytes) -> list[str]:
    """Top-level classes of a module, any of which a task can be."""
    return [node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]


def _names(file: str, text: bytes) -> set[str]:
    """Names that a module binds anywhere; with `*` if it imports all names of another."""
    try:
        tree = ast.parse(text, file)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error if isinstance(error, (SyntaxError, ValueError)) else "it is nested too deeply"
        raise ConfigError(f"line.toml: project.task: {file} is not valid Python: {reason}") from error
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name) for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names
