"""A git repository, read by argument vector: commits, trees, files as bytes, differences.

It knows how to ask git safely: `--` before what a user named, refs checked against their grammar, no hooks, no
submodules, no pager, no prompt, nothing of a surrounding hook's environment. The line's folder may be a part of a
larger repository; then "the tree" is that folder's tree. What the answers mean is left to the stages.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import ConfigError, GanglineError, UsageError
from gangline.line.strangers import clean, shown_name

_QUIET = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "submodule.recurse=false",
          "-c", "core.quotePath=false", "-c", "color.ui=false", "-c", "core.pager=cat")  # fmt: skip
_REF = re.compile(r"[A-Za-z0-9_@~^/.+-]{1,200}\Z")
_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_PAGER": "cat", "LC_ALL": "C.UTF-8"}
TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One path of a tree."""

    path: str
    """Relative to the line's folder."""
    blob: str
    """Object name."""
    mode: str
    """`100644`, `100755`; `120000` a link, `160000` a submodule."""
    size_bytes: int

    @property
    def is_file(self) -> bool:
        return self.mode in {"100644", "100755"}


@dataclass(frozen=True, slots=True)
class Passed:
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

    @staticmethod
    def at(path: Path) -> "Repository":
        """The repository that holds `path`.

        Raises:
            UsageError: There is no such folder, or no git repository; the commands that make one are named.
        """
        if not path.is_dir():
            raise UsageError(f"wanted the folder of a model repository, found no folder {path}")
        if shutil.which("git") is None:
            raise UsageError("wanted git on the PATH, found none; install git")
        done = _git(path, "rev-parse", "--is-inside-work-tree", "--show-prefix")
        if done.returncode:
            raise UsageError(_no_repository(path, _said(done)))
        inside, _, prefix = done.stdout.decode().partition("\n")
        if inside != "true":
            raise UsageError(f"{path} is a bare repository; run in a clone of it: git clone {path} work")
        return Repository(path.resolve(), prefix.strip("\n"))

    def commit(self, name: str = "HEAD") -> str:
        """Full object name of the commit called `name`.

        Raises:
            UsageError: It is no ref or there is no such commit.
        """
        if not _REF.match(name) or name.startswith("-") or ".." in name:
            raise UsageError(f"wanted a commit, branch or tag, found {name!r}; git log --oneline lists commits")
        done = _git(self.root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        if done.returncode:
            if name == "HEAD":
                raise UsageError(f"{self.root} has no commit yet; make one: git add --all && git commit -m first")
            raise UsageError(f"there is no commit {name!r} in {self.root}; git log --oneline lists them")
        return done.stdout.decode().strip()

    def tree(self, commit: str) -> str:
        """Object name of the line's folder in `commit`."""
        done = _git(self.root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}:{self.prefix}")
        if done.returncode:
            raise UsageError(f"commit {commit[:8]} has no folder {self.prefix!r}; run in one that it has")
        return done.stdout.decode().strip()

    def dirty_tree(self) -> str | None:
        """Tree of the folder as it stands on disk, untracked files included; None where it equals HEAD's."""
        if not self._ask("status", "--porcelain", "-z", "--untracked-files=normal", "--", "."):
            return None
        with tempfile.TemporaryDirectory(prefix="gangline-index-") as folder:
            index = Path(folder) / "index"
            stands = Path(self._ask("rev-parse", "--path-format=absolute", "--git-path", "index").decode().strip())
            if stands.exists():
                shutil.copyfile(stands, index)
            own = {"GIT_INDEX_FILE": str(index)}
            self._ask("add", "--all", "--", ".", env=own)
            whole = self._ask("write-tree", env=own).decode().strip()
        tree = self.tree(whole) if self.prefix else whole
        return None if tree == self.tree("HEAD") else tree

    def patch(self, old: str, new: str) -> bytes:
        """Binary difference of two trees, as `git apply` reads it."""
        return self._ask("diff", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-renames", old, new)

    def changed(self, old: str, new: str) -> tuple[str, ...]:
        """Paths that differ between two trees."""
        text = self._ask("diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new)
        return tuple(sorted(part.decode(errors="replace") for part in text.split(b"\0") if part))

    def counts(self, old: str, new: str) -> tuple[tuple[str, int | None, int | None], ...]:
        """(path, lines added, lines removed) of what differs between two trees; None of what is no text."""
        text = self._ask("diff", "--numstat", "-z", "--no-ext-diff", "--no-textconv", "--no-renames", old, new)
        rows = (part.decode(errors="replace").split("\t", 2) for part in text.split(b"\0") if part)
        return tuple((path, _count(added), _count(removed)) for added, removed, path in rows)

    def has(self, name: str) -> bool:
        """Is there an object of this full name here?"""
        return _git(self.root, "cat-file", "-e", name).returncode == 0

    def is_ancestor(self, old: str, new: str) -> bool:
        return _git(self.root, "merge-base", "--is-ancestor", "--end-of-options", old, new).returncode == 0

    def merge_base(self, one: str, other: str) -> str | None:
        """Newest commit that both come from; None where their histories never met."""
        done = _git(self.root, "merge-base", "--end-of-options", one, other)
        return done.stdout.decode().split()[0] if done.returncode == 0 else None

    def parents(self, commit: str) -> tuple[str, ...]:
        text = self._ask("rev-list", "--no-walk", "--parents", "--end-of-options", commit)
        return tuple(text.decode().split()[1:])

    def between(self, old: str, new: str) -> tuple[Passed, ...]:
        """Commits after `old` up to `new`, oldest first, along first parents: a merge counts as one commit."""
        form = "--format=%H%x00%P%x00%s%x1e"
        text = self._ask(
            "log", "--first-parent", "--reverse", "--no-show-signature", form, "--end-of-options", new, f"^{old}"
        )
        rows = (row.strip("\n").split("\0") for row in text.decode(errors="replace").split("\x1e"))
        return tuple(Passed(row[0], len(row[1].split()), clean(row[2], limit=200)) for row in rows if len(row) == 3)

    def entries(self, tree: str) -> tuple[TreeEntry, ...]:
        """Everything in `tree`, sorted by path; submodules are left out."""
        return tuple(each for each in self._listed(tree) if each.mode != "160000")

    def submodules(self, tree: str) -> tuple[str, ...]:
        """Paths of the submodules of `tree`, whose content it does not hold."""
        return tuple(each.path for each in self._listed(tree) if each.mode == "160000")

    def file(self, tree: str, path: str) -> bytes | None:
        """Content of one file of `tree`; None where it has none."""
        done = _git(self.root, "cat-file", "blob", f"{tree}:{path}")
        return done.stdout if done.returncode == 0 else None

    def blobs(self, names: list[str]) -> Iterator[bytes]:
        """Contents of many objects in one call, in order."""
        text = self._ask("cat-file", "--batch", stdin="".join(f"{name}\n" for name in names).encode())
        at = 0
        for name in names:
            end = text.index(b"\n", at)
            fields = text[at:end].split()
            if len(fields) != 3:
                raise UsageError(f"git has no object {name}; a shallow or partial clone? git fetch --unshallow")
            size = int(fields[2])
            yield text[end + 1 : end + 1 + size]
            at = end + 2 + size

    def branch(self) -> str | None:
        """Branch that is checked out; None when HEAD is detached."""
        done = _git(self.root, "symbolic-ref", "--quiet", "--short", "HEAD")
        return shown_name(done.stdout.decode(errors="replace").strip("\n")) if done.returncode == 0 else None

    def branch_holding(self, commit: str) -> str | None:
        """The one local branch whose head is `commit`, the checked-out one first; None where that is not clear."""
        text = self._ask("for-each-ref", "--points-at", commit, "--format=%(refname:short)", "refs/heads/")
        names = text.decode(errors="replace").split()
        current = self.branch()
        if current in names:
            return current
        return shown_name(names[0]) if len(names) == 1 else None

    def subject(self, commit: str) -> str:
        """First line of the message, cleaned of control and direction characters, at most 200 of it."""
        text = self._ask("show", "--no-patch", "--format=%s", "--no-show-signature", "--end-of-options", commit)
        return clean(text.decode(errors="replace"), limit=200)

    def ancestors(self, commit: str, limit: int) -> tuple[str, ...]:
        """At most `limit` commits before `commit`, nearest first."""
        text = self._ask("rev-list", f"--max-count={limit + 1}", "--topo-order", "--end-of-options", commit)
        return tuple(text.decode().split())[1:]

    def _listed(self, tree: str) -> list[TreeEntry]:
        text = self._ask("ls-tree", "-r", "-z", "--full-tree", "--long", "--end-of-options", tree)
        return sorted((_tree_entry(line) for line in text.split(b"\0") if line), key=lambda each: each.path)

    def _ask(self, *arguments: str, env: Mapping[str, str] | None = None, stdin: bytes = b"") -> bytes:
        done = _git(self.root, *arguments, env=env or {}, stdin=stdin)
        if done.returncode:
            raise GanglineError(f"git {arguments[0]} failed in {self.root}: {_said(done)}")
        return done.stdout


def _git(
    root: Path, *arguments: str, env: Mapping[str, str] | None = None, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    command = ["git", *_QUIET, *arguments]
    try:
        return subprocess.run(
            command, cwd=root, env={**inherited, **_ENVIRONMENT, **(env or {})}, input=stdin, capture_output=True,
            check=False, timeout=TIMEOUT_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise GanglineError(f"git {arguments[0]} took longer than {TIMEOUT_SECONDS:.0f} s in {root}") from error


def _count(text: str) -> int | None:
    return None if text == "-" else int(text)


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    return clean(done.stderr.decode(errors="replace"), limit=400) or f"exit {done.returncode}"


def _no_repository(path: Path, said: str) -> str:
    if "dubious ownership" in said:
        return f"git refuses {path}, which belongs to another user: git config --global --add safe.directory {path}"
    return (
        f"{path} is no git repository, and a run is named after a commit; make one there:"
        " git init && git add --all && git commit -m first"
    )


def _tree_entry(line: bytes) -> TreeEntry:
    meta, _, path = line.partition(b"\t")
    mode, _, blob, size = meta.split()
    name = path.decode(errors="surrogateescape")
    if "\udc80" <= max(name, default="") <= "\udcff":
        raise ConfigError(f"wanted file names in UTF-8, found {path!r}; git mv it")
    return TreeEntry(name, blob.decode(), mode.decode(), 0 if size == b"-" else int(size))
