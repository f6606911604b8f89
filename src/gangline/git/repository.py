"""A git repository, read through git commands: commits, trees, files as bytes, differences.

Commands are safe: `--` before names that a user gave, refs checked against their grammar, no hooks, submodules, pager
or prompt, nothing of a surrounding hook's environment. Sizes and counts are known before contents are held.
"""

import re
import shutil
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import IO

from gangline.errors import GanglineError, UsageError
from gangline.git.bounded_process import OutputTooLarge, ProcessLimits
from gangline.git.branches import BRANCH_ROW, LOCAL, REMOTE, Branch, local_branch, read_branches
from gangline.git.command import LIMITS, GitResult, git_output, own_environment, run_git, stream_git
from gangline.git.objects import KnownObjects, TreeEntry, parts, read_contents, read_entries
from gangline.sanitize import clean, shown_name
from gangline.units import format_bytes

_NAME = re.compile(r"(?!-)(?!.*(?:\.\.|\^\{/))[^\x00-\x20\x7f:?*\[\\]{1,1000}\Z", re.DOTALL)
"""Names of commits: branches and tags as git allows them, with `~`, `^` and `@` behind; no range, path or search."""
MOST_FILE_BYTES = 16_000_000
"""Size limit of a file that is read as text."""
MOST_SUBJECT_BYTES = 4096
MOST_CHANGED = 10_000
_FETCHED_HEAD = "refs/gangline/default"
"""HEAD of the remote, as `jenkins/vars/gangCheckout.groovy` fetches it; `origin/HEAD` is symbolic in a clone."""
_DEFAULTS = ("main", "master")
_MOST_FILES = 1000
"""Files that are named in one call of git."""


@dataclass(frozen=True, slots=True)
class CommitOnPath:
    """A commit on the way from one to another."""

    sha: str
    num_parents: int
    subject: str


@dataclass(frozen=True, slots=True)
class Repository:
    """A git repository, or the folder of one that a line is in."""

    root: Path
    """Folder of the line."""
    prefix: str
    """Where that is inside the work tree: `` or `examples/digits/`."""
    limits: ProcessLimits = LIMITS
    """Limits of every git process that is asked."""
    objects: tuple[Path, ...] = ()
    """Folders of other repositories whose objects git finds, too."""
    _known: KnownObjects = field(default_factory=KnownObjects, init=False, repr=False, compare=False)

    @staticmethod
    def at(path: Path) -> "Repository":
        """The repository that holds `path`.

        Raises:
            UsageError: No folder or no git repository is there; the message names the commands that make one.
            NotInstalledError: git is not installed.
        """
        if not path.is_dir():
            raise UsageError(f"wanted the folder of a model repository, found no folder {path}")
        done = run_git(path, "rev-parse", "--is-inside-work-tree", "--show-prefix")
        if done.returncode:
            raise UsageError(_no_repository(path, done.message))
        inside, _, prefix = done.stdout.decode().partition("\n")
        if inside != "true":
            raise UsageError(f"{path} is a bare repository; run in a clone of it: git clone {path} work")
        return Repository(path.resolve(), prefix.strip("\n"))

    @property
    def work_tree(self) -> Path:
        """All of it, where the line's folder is a part."""
        depth = len(Path(self.prefix).parts)
        return self.root.parents[depth - 1] if depth else self.root

    @property
    def objects_folder(self) -> Path:
        """Where its own objects are."""
        return Path(self._ask("rev-parse", "--path-format=absolute", "--git-path", "objects").decode().strip("\n"))

    def commit(self, name: str = "HEAD") -> str:
        """Full object name of the commit called `name`.

        Raises:
            UsageError: `name` has characters that no ref has, or no such commit exists.
        """
        if not _NAME.match(name):
            raise UsageError(f"wanted a commit, branch or tag, found {name!a}; git log --oneline lists commits")
        done = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        if done.returncode:
            if name == "HEAD":
                raise UsageError(f"{self.root} has no commit yet; make one: git add --all && git commit -m first")
            raise UsageError(
                f"wanted a commit of {self.root}, found no {name!r} there; git log --oneline lists commits"
            )
        return done.stdout.decode().strip()

    def tree(self, commit: str) -> str:
        """Object name of the line's folder in `commit`."""
        found = self.tree_if_any(commit)
        if found is None:
            raise UsageError(f"commit {commit[:8]} has no folder {self.prefix!r}; run in one that it has")
        return found

    def tree_if_any(self, commit: str) -> str | None:
        """Same as `tree`; None where the commit lacks the line's folder."""
        found = self._known.get(name := f"{commit}:{self.prefix}")
        if found is None:
            done = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", name)
            found = None if done.returncode else self._known.keep(name, done.stdout.strip())
        return None if found is None else found.decode()

    def whole_tree(self, commit: str) -> str:
        """Object name of all of `commit`, of which the line's folder may be a part."""
        return self._ask("rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}").decode().strip()

    def dirty_tree(self) -> str | None:
        """Tree of the folder as it is on disk, untracked files included; None if it equals HEAD's."""
        if not self._ask("status", "--porcelain", "-z", "--untracked-files=normal", "--", "."):
            return None
        with tempfile.TemporaryDirectory(prefix="gangline-index-") as folder:
            index = Path(folder) / "index"
            current = Path(self._ask("rev-parse", "--path-format=absolute", "--git-path", "index").decode().strip())
            if current.exists():
                shutil.copy2(current, index)  # with its time: a file that changed in that second is read again
            own = {"GIT_INDEX_FILE": str(index)}
            self._ask("add", "--all", "--", ".", env=own)
            whole = self._ask("write-tree", env=own).decode().strip()
        tree = self.tree(whole) if self.prefix else whole
        return None if tree == self.tree("HEAD") else tree

    def files(self) -> tuple[str, ...]:
        """Paths in the folder that git tracks; before the first commit also those that it would."""
        more = () if self.has("HEAD") else ("--others", "--exclude-standard")
        return tuple(
            self._ask("ls-files", "-z", "--cached", *more, "--", ".").decode(errors="replace").split("\0")[:-1]
        )

    def uncommitted(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Paths that were changed since HEAD, and those that git does not track; a folder of such is one."""
        text = self._ask("status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal", "--", ".")
        rows = [part.decode(errors="replace") for part in text.split(b"\0") if part]
        changed = tuple(row[3:] for row in rows if not row.startswith("??"))
        return changed, tuple(row[3:] for row in rows if row.startswith("??"))

    def patch(self, old: str, new: str) -> bytes:
        """Binary difference of two trees, as `git apply` reads it."""
        return self._ask("diff", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-renames", old, new)

    def changed(self, old: str, new: str) -> tuple[str, ...]:
        """Paths that differ between two trees, the first MOST_CHANGED of them."""
        with closing(self._stream("diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new)) as pieces:
            found = list(islice(parts(pieces), MOST_CHANGED))
        return tuple(sorted(part.decode(errors="replace") for part in found))

    def counts(self, old: str, new: str) -> tuple[tuple[str, int | None, int | None], ...]:
        """(path, lines added, lines removed) of what differs between two trees; None for a binary file."""
        text = self._ask("diff", "--numstat", "-z", "--no-ext-diff", "--no-textconv", "--no-renames", old, new)
        rows = (part.decode(errors="replace").split("\t", 2) for part in text.split(b"\0") if part)
        return tuple((path, _count(added), _count(removed)) for added, removed, path in rows)

    def has(self, name: str) -> bool:
        """Is there an object of this full name here?"""
        return self._git("cat-file", "-e", name).returncode == 0

    def ignores(self, path: str) -> bool:
        """Do the rules of .gitignore leave `path` of the folder out?"""
        return self._git("check-ignore", "--quiet", "--", path).returncode == 0

    def is_ancestor(self, old: str, new: str) -> bool:
        """Whether `old` is part of the history of `new`; a commit is part of its own."""
        return self._git("merge-base", "--is-ancestor", "--end-of-options", old, new).returncode == 0

    def merge_base(self, one: str, other: str) -> str | None:
        """Newest commit that both come from; None where their histories never met."""
        done = self._git("merge-base", "--end-of-options", one, other)
        return done.stdout.decode().split()[0] if done.returncode == 0 else None

    def parents(self, commit: str) -> tuple[str, ...]:
        """Parents in their order; of a merge several, of a first commit none."""
        text = self._ask("rev-list", "--no-walk", "--parents", "--end-of-options", commit)
        return tuple(text.decode().split()[1:])

    def between(self, old: str, new: str) -> tuple[CommitOnPath, ...]:
        """Commits after `old` up to `new`, oldest first, along first parents: a merge counts as one commit."""
        form = "--format=%H%x00%P%x00%s%x1e"
        text = self._ask(
            "log", "--first-parent", "--reverse", "--no-show-signature", form, "--end-of-options", new, f"^{old}"
        )
        rows = (row.strip("\n").split("\0") for row in text.decode(errors="replace").split("\x1e"))
        return tuple(
            CommitOnPath(row[0], len(row[1].split()), clean(row[2], limit=200)) for row in rows if len(row) == 3
        )

    def entries(self, tree: str) -> tuple[TreeEntry, ...]:
        """Everything in `tree`, sorted by path; submodules are left out."""
        return tuple(submodule for submodule in self.entries_and_submodules(tree) if not submodule.is_submodule)

    def entries_and_submodules(self, tree: str) -> tuple[TreeEntry, ...]:
        """Same as `entries`, with submodules, whose content `tree` does not hold."""
        name, arguments = f"{tree}:\0", ("ls-tree", "-r", "-z", "--full-tree", "--long", "--end-of-options", tree)
        if name not in self._known:
            with closing(self._stream(*arguments)) as pieces:
                return tuple(read_entries(self._known.keep_pieces(name, pieces)))
        return tuple(read_entries([self._known[name]]))

    def file(self, tree: str, path: str, *, most_bytes: int = MOST_FILE_BYTES) -> bytes | None:
        """Content of one file of `tree`; None where it has none.

        Raises:
            OutputTooLarge: It has more than `most_bytes`; no more than these were read.
        """
        name, limits = f"{tree}:{path}", replace(self.limits, most_bytes=most_bytes)
        if (known := self._known.get(name)) is not None and len(known) <= most_bytes:
            return known
        try:
            done = run_git(
                self.root, "cat-file", "blob", name, environ=own_environment(objects=self.objects), limits=limits
            )
        except OutputTooLarge:
            found = format_bytes(int(self._ask("cat-file", "-s", name)))
            wanted = f"wanted at most {format_bytes(most_bytes)}, found {found}"
            raise OutputTooLarge(f"{clean(path, limit=200)}: {wanted}; move data out of the file") from None
        return self._known.keep(name, done.stdout) if done.returncode == 0 else None

    def mentions(self, tree: str, text: str, *, besides: Sequence[str] = ()) -> bool:
        """Is `text` in any file of `tree`, those that match `besides` left out?"""
        left_out = [f":(exclude){each}" for each in besides]
        return self._git("grep", "--quiet", "--fixed-strings", "-e", text, tree, "--", ".", *left_out).returncode == 0

    def blobs(self, names: list[str]) -> Iterator[bytes]:
        """Contents of many objects in one call, in order, one held at a time.

        Raises:
            OutputTooLarge: One is larger than what anything is made of.
        """
        with tempfile.TemporaryFile() as stdin:
            stdin.writelines(f"{name}\n".encode() for name in names)
            stdin.seek(0)
            with closing(self._stream("cat-file", "--batch", stdin=stdin)) as pieces:
                yield from read_contents(pieces, names)

    def branch(self) -> str | None:
        """Branch that is checked out; None when HEAD is detached."""
        done = self._git("symbolic-ref", "--quiet", "HEAD")
        return shown_name(local_branch(done.stdout)) if done.returncode == 0 else None

    def branch_holding(self, commit: str) -> str | None:
        """The one local branch whose head is `commit`, the checked-out one first; None where that is not clear."""
        text = self._ask("for-each-ref", "--points-at", commit, "--format=%(refname)", LOCAL)
        names, current = [local_branch(row) for row in text.split(b"\n") if row], self.branch()
        if current in names:
            return current
        return shown_name(names[0]) if len(names) == 1 else None

    def branches(self) -> tuple[Branch, ...]:
        """Local branches, then those of `origin`."""
        rows = self._ask("for-each-ref", f"--format={BRANCH_ROW}", LOCAL, REMOTE)
        return read_branches(rows.decode(errors="replace"))

    def default_branch(self, branches: Sequence[Branch] | None = None) -> Branch | None:
        """The branch that `origin` calls its default, else its main or master, where it has one of these alone.

        `branches` are those that `branches` returned, if it was called.

        Where none of `origin` is here: the local main or master; in a repository without remotes also the branch that
        is checked out. None where there is none of these.
        """
        branches = self.branches() if branches is None else branches
        theirs = {branch.name: branch for branch in branches if branch.ref.startswith(REMOTE)}
        known = theirs or {branch.name: branch for branch in branches}
        usual = next((known[name] for name in _DEFAULTS if name in known), None)
        if not theirs:
            checked_out = next((branch for branch in branches if branch.is_current), None)
            return usual or (None if self._ask("remote") else checked_out)
        head = self._head_of_origin(theirs)
        if head is None and known.keys() >= set(_DEFAULTS):
            return None  # anyone who may push could have made the other one
        return known.get(head or "", usual)

    def is_part_of(self, commit: str, branches: Sequence[Branch]) -> bool:
        """Is `commit` part of the history of one of `branches`?"""
        refs = [branch.ref for branch in branches]
        return bool(refs) and bool(self._ask("for-each-ref", "--count=1", f"--contains={commit}", "--", *refs))

    def subject(self, commit: str) -> str:
        """First line of the message, cleaned of control and direction characters, at most 200 of it."""
        arguments = ("show", "--no-patch", "--format=%s", "--no-show-signature", "--end-of-options", commit)
        with closing(self._stream(*arguments)) as pieces:
            head = next(pieces, b"")[:MOST_SUBJECT_BYTES]
        return clean(head.decode(errors="replace"), limit=200)

    def age_seconds(self, commit: str) -> float:
        """Time since the commit was made, by its own date."""
        text = self._ask("show", "--no-patch", "--format=%ct", "--no-show-signature", "--end-of-options", commit)
        return time.time() - float(text) if text.strip().isdigit() and len(text) < 20 else 0.0

    def ancestors(self, commit: str, limit: int) -> tuple[str, ...]:
        """Commits before `commit`: first its branch (first parents), then what was merged; `limit` of each at most."""
        first = self._before(commit, limit, "--first-parent")
        return tuple(dict.fromkeys((*first, *self._before(commit, limit, "--topo-order"))))

    def _before(self, commit: str, limit: int, order: str) -> list[str]:
        text = self._ask("rev-list", f"--max-count={limit + 1}", order, "--end-of-options", commit)
        return text.decode().split()[1:]

    @property
    def is_shallow(self) -> bool:
        """A clone that was cut: commits before some of its own are not there."""
        return self._ask("rev-parse", "--is-shallow-repository") == b"true\n"

    def _head_of_origin(self, theirs: Mapping[str, Branch]) -> str | None:
        """Default branch of `origin`, by its commit where a build server fetched that, else by its name."""
        head = self._ask("for-each-ref", "--format=%(objectname)", _FETCHED_HEAD).decode().strip()
        same = [name for name, branch in theirs.items() if branch.commit == head]
        if same:
            return next(name for name in (*_DEFAULTS, *same) if name in same)
        done = self._git("symbolic-ref", "--quiet", f"{REMOTE}HEAD")
        return done.stdout.decode(errors="replace").strip("\n").removeprefix(REMOTE) if done.returncode == 0 else None

    def _ask(self, *arguments: str, env: Mapping[str, str] | None = None) -> bytes:
        return git_output(self.root, *arguments, environ=own_environment(env, self.objects), limits=self.limits)

    def _git(self, *arguments: str) -> GitResult:
        return run_git(self.root, *arguments, environ=own_environment(objects=self.objects), limits=self.limits)

    def _stream(self, *arguments: str, stdin: IO[bytes] | None = None) -> Generator[bytes]:
        return stream_git(
            self.root, *arguments, environ=own_environment(objects=self.objects), limits=self.limits, stdin=stdin
        )


def commit_of_files(folder: Path, files: Sequence[Path]) -> str | None:
    """Newest commit that changed one of the files; None: one is not tracked, was changed since, or is in no work tree.

    It is the same in later commits that leave the files alone.
    """
    names = [str(path.resolve()) for path in files]
    if len(names) > _MOST_FILES:
        return None
    try:
        tracked = run_git(folder, "--literal-pathspecs", "ls-files", "--error-unmatch", "--", *names)
        changed = run_git(folder, "--literal-pathspecs", "status", "--porcelain", "--", *names)
        newest = run_git(folder, "--literal-pathspecs", "log", "-1", "--format=%H", "--", *names)
    except GanglineError:  # no git, or no answer in time: the origin is not known
        return None
    if tracked.returncode or changed.returncode or changed.stdout.strip() or newest.returncode:
        return None
    return newest.stdout.decode().strip() or None


def _count(text: str) -> int | None:
    return None if text == "-" else int(text)


def _no_repository(path: Path, message: str) -> str:
    if "dubious ownership" in message:
        return f"git refuses {path}, which belongs to another user: git config --global --add safe.directory {path}"
    return (
        f"wanted a git repository, since a run is named after a commit; found none at {path}; make one there:"
        " git init && git add --all && git commit -m first"
    )
