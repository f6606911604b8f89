"""Bare mirror of one repository: fetched into within bounds, made again if it is damaged, emptied if it is full.

Its content is untrusted: what a fetch brings is bounded by the size of the clone, its time and git's memory, and what
a commit holds is counted before a repository is made of it.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from gangline.errors import StorageError
from gangline.git import repository_address
from gangline.git.bounded_process import OutputTooLarge, ProcessLimits
from gangline.git.branches import REMOTE, check_branch
from gangline.git.command import GitFailed, GitResult, stream_git
from gangline.git.objects import MOST_ENTRIES, parts
from gangline.git.remote import FETCH_SECONDS, MEMORY_BYTES, git_environment, is_commit, kept_ref, run_remote_git
from gangline.git.repository import MOST_CHANGED, Repository
from gangline.units import format_bytes

LOCAL_SECONDS = 60.0
MOST_SAID_BYTES = 16 << 20
"""Size limit of an answer that is held whole."""
LEAST_BYTES = 1 << 20
"""Room that a fetch needs at all."""
ORIGIN_IS_MIRROR = "gangline.originIsMirror"
"""Setting of a repository that was lent objects: tags may go to its `origin`, which is the mirror on the same disk."""
_FETCH = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--end-of-options")


@dataclass(frozen=True, slots=True)
class RemoteBranches:
    """Branches of the remote repository: the name of the default branch, and commits by name."""

    default: str | None = None
    commits: Mapping[str, str] = field(default_factory=dict)


UNKNOWN_BRANCHES = RemoteBranches()


@dataclass(frozen=True, kw_only=True, slots=True)
class GitMirror:
    """The mirror at `path`, which may not exist yet."""

    path: Path
    most_bytes: int
    """Size limit of its objects on the disk."""
    is_over: Callable[[], bool]
    """Once it returns True, a running git is killed and `ProcessStopped` raised."""

    @property
    def is_there(self) -> bool:
        """Whether a bare repository is at `path`."""
        done = self.ask("rev-parse", "--is-bare-repository") if self.path.is_dir() else None
        return done is not None and done.stdout.strip() == b"true"

    @property
    def is_sound(self) -> bool:
        """Every ref can be followed to its end."""
        done = self._git("fsck", "--connectivity-only", "--no-dangling", "--no-progress", seconds=FETCH_SECONDS)
        return done.returncode == 0

    def make(self) -> None:
        """Replace it by an empty one; repositories that borrow its objects have them again after the next fetch."""
        fresh = Path(tempfile.mkdtemp(prefix=".mirror-", dir=self.path.parent))
        self._must(fresh, "init", "--quiet", "--bare", "--template=", "--initial-branch=main", ".")
        if self.path.is_dir():
            shutil.rmtree(self.path)
        self.path.unlink(missing_ok=True)
        fresh.rename(self.path)

    def fetch(self, url: str, wanted: Sequence[str], environment: Mapping[str, str]) -> str | None:
        """Fetch `wanted`; None, or what went wrong in one line. The mirror is one of `url` from then on.

        Raises:
            OutputTooLarge: The clone would be larger than it may be, also after unneeded commits were collected.
        """
        self._must(self.path, "config", repository_address.SETTING, url)
        trouble, was_full = self._fetch(url, wanted, environment)
        if was_full and self._collect():
            trouble, was_full = self._fetch(url, wanted, environment)
        if was_full:
            most = format_bytes(self.most_bytes)
            raise OutputTooLarge(f"the repository makes its clone larger than {most}; serve.clone_bytes allows more")
        return trouble

    def commit(self, name: str) -> Repository | None:
        """The repository to be read at commit `name`, in which no file is written; None where it is not here."""
        if not self.is_there or self.ask("cat-file", "-e", f"{name}^{{tree}}").returncode:
            return None
        return Repository(
            self.path, "", ProcessLimits(seconds=LOCAL_SECONDS, memory_bytes=MEMORY_BYTES, is_over=self.is_over)
        )

    def require_size_limits(self, commit: str) -> None:
        """Raises OutputTooLarge if a commit has more than MOST_ENTRIES files; they are counted, not held."""
        with self._listed("ls-tree", "-r", "-z", "--name-only", "--full-tree", "--end-of-options", commit) as paths:
            if sum(1 for _ in islice(paths, MOST_ENTRIES + 1)) > MOST_ENTRIES:
                raise OutputTooLarge(
                    f"commit {commit[:12]}: wanted at most {MOST_ENTRIES:,} files, found more; move some away"
                )

    def changed(self, old: str, new: str) -> list[str] | None:
        """Paths that differ between two commits; None where they are not both here, or are too many."""
        if self.commit(old) is None or self.commit(new) is None:
            return None
        with self._listed("diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new) as paths:
            found = list(islice(paths, MOST_CHANGED + 1))
        return None if len(found) > MOST_CHANGED else [each.decode(errors="replace") for each in found]

    def require_all_objects(self, commit: str) -> None:
        """Raises StorageError where objects of the commit are damaged; the next fetch then starts from nothing."""
        done = self.ask("rev-list", "--objects", "--quiet", "--max-count=1", commit)
        if done.returncode and not self.is_sound:
            self.make()
            raise StorageError(f"{self.path} was damaged on disk and has been replaced by an empty one; fetch again")

    def lend(self, place: Path, commit: str) -> None:
        """Make a repository at `place` with HEAD `commit` that borrows the mirror's objects; complete or not there."""
        self._must(self.path, "update-ref", kept_ref(commit), commit)
        fresh = Path(tempfile.mkdtemp(prefix=".commit-", dir=place.parent.parent))
        self._must(fresh, "init", "--quiet", "--template=", "--initial-branch=main", ".")
        (fresh / ".git" / "objects" / "info").mkdir(parents=True, exist_ok=True)
        alternates = fresh / ".git" / "objects" / "info" / "alternates"
        alternates.write_text(f"{self.path.resolve() / 'objects'}\n", "utf-8")
        self._must(fresh, "remote", "add", "origin", str(self.path.resolve()))
        self._must(fresh, "config", ORIGIN_IS_MIRROR, "true")
        self._must(fresh, "update-ref", "--no-deref", "HEAD", commit)
        self._must(fresh, "config", "core.sparseCheckout", "true")
        (fresh / ".git" / "info").mkdir(exist_ok=True)
        (fresh / ".git" / "info" / "sparse-checkout").write_text("!/*\n", "ascii")
        self._must(fresh, "read-tree", "-m", "-u", "HEAD")
        if place.exists():
            shutil.rmtree(place)
        fresh.rename(place)

    def has_clone(self, place: Path, commit: str) -> bool:
        """Whether the repository at `place` is whole and its HEAD is `commit`."""
        if not (place / ".git").is_dir():
            return False
        done = run_remote_git(place, "rev-parse", "--verify", "--quiet", "HEAD^{commit}", limits=self._limits())
        return done.stdout.decode().strip() == commit

    def write_remote_branches(self, place: Path, standing: RemoteBranches) -> None:
        """Write branches of `origin` at `place`, those whose commits are here.

        Branches that are there already stay, but for one that is a folder of a new one now, or the other way about.
        """
        for branch, commit in standing.commits.items():
            ref = f"{REMOTE}{check_branch(branch)}"
            if is_commit(commit) and self.commit(commit) is not None:
                self._make_room(place, ref)
                self._must(place, "update-ref", "--no-deref", ref, commit)
        if standing.default in standing.commits:
            self._must(place, "symbolic-ref", f"{REMOTE}HEAD", f"{REMOTE}{standing.default}")

    def _make_room(self, place: Path, ref: str) -> None:
        done = run_remote_git(place, "for-each-ref", "--format=%(refname)", REMOTE, limits=self._limits())
        for other in filter(None, done.text.split("\n")):
            if other.startswith(f"{ref}/") or ref.startswith(f"{other}/"):
                self._must(place, "update-ref", "--no-deref", "-d", other)

    def ask(self, *arguments: str) -> GitResult:
        """Run git in the mirror; for short commands."""
        return self._git(*arguments, seconds=LOCAL_SECONDS)

    def _fetch(self, url: str, wanted: Sequence[str], environment: Mapping[str, str]) -> tuple[str | None, bool]:
        """The error message, if any, and whether the size limit was the cause."""
        room = self.most_bytes - _size_bytes(self.path / "objects")
        if room < LEAST_BYTES:
            return "the clone is full", True
        limits = self._limits(FETCH_SECONDS, file_bytes=room)
        try:
            done = run_remote_git(self.path, *_FETCH, url, *wanted, environ=environment, limits=limits)
        finally:
            left = self._left_packs()
        return (done.message, bool(left and max(left) >= room - LEAST_BYTES)) if done.returncode else (None, False)

    def _left_packs(self) -> list[int]:
        """Delete the files that an interrupted fetch has left; returns their sizes in bytes."""
        paths = list((self.path / "objects" / "pack").glob("tmp_*"))
        sizes = [each.stat().st_size for each in paths]
        for path in paths:
            path.unlink(missing_ok=True)
        return sizes

    def _collect(self) -> bool:
        """Remove objects that no repository of a commit uses; returns whether there is more room now."""
        before = _size_bytes(self.path / "objects")
        refs = self.ask("for-each-ref", "--format=%(refname)", "refs/gangline/fetched/").stdout.split()
        for ref in refs:
            self.ask("update-ref", "-d", ref.decode())
        self._git("gc", "--quiet", "--prune=now", seconds=FETCH_SECONDS)
        return _size_bytes(self.path / "objects") < before

    @contextmanager
    def _listed(self, *arguments: str) -> Iterator[Iterator[bytes]]:
        """Paths, one after the other; git is ended with the block."""
        stream = stream_git(self.path, *arguments, environ=git_environment(), limits=self._limits())
        with closing(stream) as pieces:
            yield parts(pieces)

    def _limits(self, seconds: float = LOCAL_SECONDS, *, file_bytes: int | None = None) -> ProcessLimits:
        return ProcessLimits(
            seconds=seconds, most_bytes=MOST_SAID_BYTES, memory_bytes=MEMORY_BYTES, file_bytes=file_bytes,
            is_over=self.is_over,
        )  # fmt: skip

    def _git(self, *arguments: str, seconds: float) -> GitResult:
        return run_remote_git(self.path, *arguments, limits=self._limits(seconds))

    def _must(self, folder: Path, *arguments: str) -> None:
        done = run_remote_git(folder, *arguments, limits=self._limits())
        if done.returncode:
            raise GitFailed(f"git {arguments[0]} failed in {folder}: {done.message}")


def _size_bytes(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += (Path(place) / name).stat().st_size
    return total
