"""Clones that a service builds from: one bare mirror a repository, beside it a small repository a commit.

    HOME/<name>/mirror.git          every object that was ever asked for
    HOME/<name>/commits/<commit>/   a repository of its own that borrows the mirror's objects

No file of a commit is ever written out: a line is read from its objects, so a link, filter or submodule in a tree meets
nobody. Several processes may use one home; whoever changes a repository's folder holds its lock. How git is asked is
known to `fetching`; which ref is wanted, and when a commit is needed no more, to the caller.
"""

import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess

from gangline.errors import StorageError, UsageError
from gangline.line import fetching
from gangline.line.fetching import check_url, git, git_environment, is_commit, kept_ref, said
from gangline.line.places import writing
from gangline.line.strangers import clean

LOCAL_SECONDS = 60.0
_MODEL_TAGS = "refs/tags/model/*:refs/tags/model/*"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")


class Clones:
    """All clones below one folder."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def fetch(
        self, url: str, *, name: str, refs: Sequence[str], credential: str | None = None, local: bool = False
    ) -> Path:
        """Bring what stands at `refs` into the mirror of `name`, made where there is none or a damaged one.

        Args:
            url: https; http on loopback alone; a folder or file:// where `local`.
            name: Of the mirror, one segment.
            refs: Full refs or object names.
            credential: Password or `user:password` for the URL's host.
            local: An administrator named the repository: it may lie on this machine.

        Raises:
            UsageError: A URL, name or ref that is none of these.
            StorageError: The other side is away, refuses, or has no such ref.
        """
        protocol = check_url(url, local=local)
        wanted = fetching.refspecs(refs)
        environment = git_environment(protocol, url=url, credential=credential)
        with self._locked(name) as folder:
            mirror = folder / "mirror.git"
            if not _is_mirror(mirror):
                _make_mirror(mirror)
            trouble = _fetch(mirror, url, wanted, environment)
            if trouble and not _is_sound(mirror):
                _make_mirror(mirror)
                trouble = _fetch(mirror, url, wanted, environment)
            if trouble:
                raise StorageError(f"{name}: could not fetch {', '.join(refs)} from {url}: {trouble}")
        return mirror

    def checkout(self, name: str, commit: str) -> Path:
        """Repository at `commit`, to be driven as it stands (`gangline run PATH --commit ...`); made once.

        Its remote `origin` is the mirror, so that tags of published models outlive it.

        Raises:
            UsageError: Nothing of that name was fetched, or `commit` is no full object name.
            StorageError: The mirror has no such commit (any more); fetch again.
        """
        if not is_commit(commit):
            raise UsageError(f"wanted a commit's full object name, found {commit[:80]!r}")
        with self._locked(name) as folder:
            mirror, place = folder / "mirror.git", folder / "commits" / commit
            if not _has_commit(mirror, commit):
                raise StorageError(f"{name}: the mirror holds no commit {commit[:12]}; was it pushed over? fetch again")
            if not _is_at(place, commit):
                _demand_whole(mirror, commit)
                _borrow(mirror, place, commit)
            os.utime(place)
        return place

    def bring_tags(self, url: str, *, name: str, credential: str | None = None, local: bool = False) -> None:
        """Tags of published models that stand at the other side; arguments and errors are those of `fetch`."""
        environment = git_environment(check_url(url, local=local), url=url, credential=credential)
        with self._locked(name) as folder:
            trouble = _fetch(folder / "mirror.git", url, [_MODEL_TAGS], environment)
        if trouble:
            raise StorageError(f"{name}: could not fetch the tags of models from {url}: {trouble}")

    def send_tags(self, url: str, *, name: str, credential: str | None = None, local: bool = False) -> None:
        """Create the tags of published models at the other side; one that stands there is never moved.

        Raises:
            StorageError: The other side is away, refuses, or holds another tag of such a name.
        """
        environment = git_environment(check_url(url, local=local), url=url, credential=credential)
        with self._locked(name) as folder:
            done = git(folder / "mirror.git", "push", "--porcelain", "--", url, _MODEL_TAGS, environment=environment)
        if done.returncode:
            refused = [line for line in done.stdout.decode(errors="replace").splitlines() if line.startswith("!")]
            why = clean("; ".join(refused), limit=300) or said(done)
            raise StorageError(f"{name}: tags of models could not be pushed to {url}: {why}")

    def changed(self, name: str, old: str, new: str) -> list[str] | None:
        """Paths that differ between two commits; None where the mirror does not hold both."""
        mirror = self._folder(name) / "mirror.git"
        if not all(is_commit(each) for each in (old, new)):
            return None
        done = _local(mirror, "diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new)
        return None if done.returncode else [p.decode(errors="replace") for p in done.stdout.split(b"\0") if p]

    def is_ancestor(self, name: str, commit: str, of: str) -> bool:
        """Is `commit` part of the history that leads to `of`?"""
        mirror = self._folder(name) / "mirror.git"
        return (
            is_commit(commit)
            and is_commit(of)
            and _local(mirror, "merge-base", "--is-ancestor", commit, of).returncode == 0
        )

    def heads(self, url: str, *, local: bool = False, credential: str | None = None) -> dict[str, str]:
        """Commit that stands at each branch of a repository, by ref; raises as `fetch` does."""
        environment = git_environment(check_url(url, local=local), url=url, credential=credential)
        done = git(Path("/"), "ls-remote", "--heads", "--end-of-options", url, environment=environment)
        if done.returncode:
            raise StorageError(f"could not list the branches of {url}: {said(done)}")
        rows = (line.split("\t", 1) for line in done.stdout.decode(errors="replace").splitlines())
        return {ref: commit for commit, ref in rows}

    def release(self, *, idle_seconds: float, keep: Collection[Path] = ()) -> list[Path]:
        """Remove commits' repositories that nobody asked for lately, but those of `keep`; which went."""
        gone: list[Path] = []
        for folder in sorted(self.home.glob("*/commits")):
            with self._locked(folder.parent.name):
                for place in sorted(folder.iterdir()):
                    if place not in keep and _idle_seconds(place) >= idle_seconds:
                        _local(folder.parent / "mirror.git", "update-ref", "-d", kept_ref(place.name))
                        shutil.rmtree(place)
                        gone.append(place)
        return gone

    def _folder(self, name: str) -> Path:
        if not _NAME.match(name):
            raise UsageError(f"wanted letters, digits, dots and dashes as the name of a clone, found {name[:80]!r}")
        return self.home / name

    @contextmanager
    def _locked(self, name: str) -> Iterator[Path]:
        """The folder of `name`, for one thread of one process; ends with its holder, also by a kill."""
        folder = self._folder(name)
        with writing(folder):
            (folder / "commits").mkdir(parents=True, exist_ok=True)
            with (folder / "lock").open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield folder


def _fetch(mirror: Path, url: str, wanted: Sequence[str], environment: dict[str, str]) -> str | None:
    """None, or what went wrong in one line."""
    arguments = (
        "fetch",
        "--quiet",
        "--no-tags",
        "--no-write-fetch-head",
        "--no-recurse-submodules",
        "--end-of-options",
    )
    done = git(mirror, *arguments, url, *wanted, environment=environment)
    return said(done) if done.returncode else None


def _is_mirror(mirror: Path) -> bool:
    done = _local(mirror, "rev-parse", "--is-bare-repository") if mirror.is_dir() else None
    return done is not None and done.stdout.strip() == b"true"


def _is_sound(mirror: Path) -> bool:
    """Every ref can be followed to its end."""
    return git(mirror, "fsck", "--connectivity-only", "--no-dangling", "--no-progress").returncode == 0


def _make_mirror(mirror: Path) -> None:
    """An empty mirror at this place; what stood there is gone. Repositories that borrow from it find objects again
    after the next fetch."""
    fresh = Path(tempfile.mkdtemp(prefix=".mirror-", dir=mirror.parent))
    _must(fresh, "init", "--quiet", "--bare", "--template=", "--initial-branch=main", ".")
    if mirror.is_dir():
        shutil.rmtree(mirror)
    mirror.unlink(missing_ok=True)
    fresh.rename(mirror)


def _has_commit(mirror: Path, commit: str) -> bool:
    return _is_mirror(mirror) and _local(mirror, "cat-file", "-e", f"{commit}^{{tree}}").returncode == 0


def _demand_whole(mirror: Path, commit: str) -> None:
    """Raises StorageError where objects of the commit are damaged; the next fetch then starts from nothing."""
    if _local(mirror, "rev-list", "--objects", "--quiet", "--max-count=1", commit).returncode and not _is_sound(mirror):
        _make_mirror(mirror)
        raise StorageError(f"{mirror} was damaged on disk and is made anew; fetch again")


def _is_at(place: Path, commit: str) -> bool:
    if not (place / ".git").is_dir():
        return False
    done = _local(place, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    return done.stdout.decode().strip() == commit


def _borrow(mirror: Path, place: Path, commit: str) -> None:
    """A repository at `place` whose objects are the mirror's and whose head is `commit`; whole or not there."""
    _must(mirror, "update-ref", kept_ref(commit), commit)
    fresh = Path(tempfile.mkdtemp(prefix=".commit-", dir=place.parent.parent))
    _must(fresh, "init", "--quiet", "--template=", "--initial-branch=main", ".")
    (fresh / ".git" / "objects" / "info").mkdir(parents=True, exist_ok=True)
    (fresh / ".git" / "objects" / "info" / "alternates").write_text(f"{mirror.resolve() / 'objects'}\n", "utf-8")
    _must(fresh, "remote", "add", "origin", str(mirror.resolve()))
    _must(fresh, "update-ref", "--no-deref", "HEAD", commit)
    _must(fresh, "config", "core.sparseCheckout", "true")
    (fresh / ".git" / "info").mkdir(exist_ok=True)
    (fresh / ".git" / "info" / "sparse-checkout").write_text("!/*\n", "ascii")
    _must(fresh, "read-tree", "-m", "-u", "HEAD")
    if place.exists():
        shutil.rmtree(place)
    fresh.rename(place)


def _idle_seconds(place: Path) -> float:
    return time.time() - place.stat().st_mtime


def _local(folder: Path, *arguments: str) -> CompletedProcess[bytes]:
    return git(folder, *arguments, seconds=LOCAL_SECONDS)


def _must(folder: Path, *arguments: str) -> None:
    done = _local(folder, *arguments)
    if done.returncode:
        raise StorageError(f"git {arguments[0]} failed in {folder}: {said(done)}")
