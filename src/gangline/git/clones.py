"""Clones that a service builds from: one bare mirror for each repository, and a small repository for each commit.

    HOME/<name>/mirror.git          every object that was ever fetched
    HOME/<name>/commits/<commit>/   a repository of its own that borrows the mirror's objects

No file of a commit is ever written out: a line is read from its objects, so links, filters and submodules have no
effect. Several processes may use one home; the one that changes a repository's folder holds its lock. The caller
decides which refs are fetched and when a commit is no longer needed.
"""

import fcntl
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from gangline.errors import CapacityError, StorageError, UsageError, storage_errors
from gangline.git import remote
from gangline.git.bounded_process import LOOK_SECONDS, OutputTooLarge, ProcessLimits, ProcessStopped
from gangline.git.mirror import UNKNOWN_BRANCHES, GitMirror, RemoteBranches
from gangline.git.remote import FETCH_SECONDS, MEMORY_BYTES, is_commit, kept_ref, remote_environment, run_remote_git
from gangline.http.address_check import Resolve, system_resolve
from gangline.sanitize import clean

MOST_BYTES = 20 * 10**9
MOST_LISTED_BYTES = 16 << 20
"""Size limit of a list of branches."""
_MODEL_TAGS = "refs/tags/model/*:refs/tags/model/*"
_SYMREF = re.compile(r"^ref: refs/heads/([^\t\n]+)\tHEAD\n([0-9a-f]{40,64})\tHEAD$", re.MULTILINE)
_DEFAULTS = ("main", "master")
_USUAL = re.compile(r"^([0-9a-f]{40,64})\trefs/heads/(main|master)$", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")


class CloneBusy(CapacityError):
    """Another process held the lock of a repository's folder for longer than `wait_seconds`."""


class Clones:
    """All clones below one folder.

    Args:
        home: The folder.
        most_bytes: Of the objects of one repository.
        wait_seconds: For another process that holds the lock of a repository's folder.
        resolve: Looks up the names of servers.
        is_over: Called while git runs: once it returns True, git is killed and `ProcessStopped` raised.
    """

    def __init__(
        self,
        home: Path,
        *,
        most_bytes: int = MOST_BYTES,
        wait_seconds: float = FETCH_SECONDS,
        resolve: Resolve = system_resolve,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self.home = home
        self.is_over = is_over
        self._most_bytes, self._wait_seconds, self._resolve = most_bytes, wait_seconds, resolve

    def until(self, is_over: Callable[[], bool]) -> "Clones":
        """The same clones with another `is_over`."""
        return Clones(
            self.home, most_bytes=self._most_bytes, wait_seconds=self._wait_seconds, resolve=self._resolve,
            is_over=is_over,
        )  # fmt: skip

    def fetch(
        self,
        url: str,
        *,
        name: str,
        refs: Sequence[str],
        credential: str | None = None,
        local: bool = False,
        named_by_site: bool = False,
    ) -> Path:
        """Fetch `refs` into the mirror of `name`; a missing or damaged mirror is made first.

        Args:
            url: https; http on loopback alone; a folder or file:// where `local`.
            name: Of the mirror, one segment.
            refs: Full refs or object names.
            credential: Password or `user:password` for the URL's host.
            local: An administrator named the repository: it may lie on this machine.
            named_by_site: The site names the server: it may be on a private network.

        Raises:
            UsageError: A URL, name or ref that is none of these.
            ConfigError: The URL's host resolves to an address that may not be dialled.
            StorageError: The other side does not answer, refuses, or has no such ref.
            OutputTooLarge: There is more than may be fetched.
            CloneBusy: Somebody else fetches it.
        """
        wanted = remote.refspecs(refs)
        environment = self._environment(url, local=local, named_by_site=named_by_site, credential=credential)
        with self._locked(name) as folder:
            mirror = self._mirror(folder)
            if not mirror.is_there:
                mirror.make()
            trouble = mirror.fetch(url, wanted, environment)
            if trouble and not mirror.is_sound:
                mirror.make()
                trouble = mirror.fetch(url, wanted, environment)
            if trouble:
                raise StorageError(f"{name}: could not fetch {', '.join(refs)} from {url}: {trouble}")
        return mirror.path

    def fetch_default_branch(
        self, url: str, *, name: str, credential: str | None = None, local: bool = False, named_by_site: bool = False
    ) -> tuple[str, str] | None:
        """Name and commit of the other side's default branch, which is fetched; None if it names none.

        That is its HEAD; in a work tree of this machine, where HEAD is what is checked out, main or master comes first.
        Raises as `fetch` does.
        """
        environment = self._environment(url, local=local, named_by_site=named_by_site, credential=credential)
        wanted = ("HEAD", *(f"refs/heads/{each}" for each in _DEFAULTS))
        arguments = ("ls-remote", "--symref", "--end-of-options", url, *wanted)
        done = run_remote_git(Path("/"), *arguments, environ=environment, limits=self._limits)
        if done.returncode:
            raise StorageError(f"could not ask {url} for its default branch: {done.message}")
        text = done.text
        head = _SYMREF.search(text)
        usual = None
        if local:
            inside = run_remote_git(Path(url.removeprefix("file://")), "rev-parse", "--is-inside-work-tree")
            usual = _USUAL.search(text) if inside.returncode == 0 and inside.stdout.strip() == b"true" else None
        branch, commit = (usual[2], usual[1]) if usual else (head[1], head[2]) if head else ("", "")
        if not branch:
            return None
        ref = f"refs/heads/{branch}"
        self.fetch(url, name=name, refs=[ref], credential=credential, local=local, named_by_site=named_by_site)
        return branch, commit

    def checkout(self, name: str, commit: str, *, standing: RemoteBranches = UNKNOWN_BRANCHES) -> Path:
        """Repository at `commit`, for `gangline run PATH --commit ...`; made once.

        Its remote `origin` is the mirror, so that tags of published models outlive it; of the branches of `origin` it
        has those of `standing` whose commits the mirror has, and those of earlier calls.

        Raises:
            UsageError: No repository of that name was fetched, or `commit` is no full object name.
            StorageError: The mirror has no such commit (any more); fetch again.
            OutputTooLarge: It has more files than a run is made of.
        """
        if not is_commit(commit):
            raise UsageError(f"wanted a commit's full object name, found {commit[:80]!r}")
        with self._locked(name) as folder:
            mirror, place = self._mirror(folder), folder / "commits" / commit
            if mirror.commit(commit) is None:
                raise StorageError(
                    f"{name}: the mirror has no commit {commit[:12]}; was it replaced by a forced push? fetch again"
                )
            if not mirror.has_clone(place, commit):
                mirror.require_size_limits(commit)
                mirror.require_all_objects(commit)
                mirror.lend(place, commit)
            mirror.write_remote_branches(place, standing)
            os.utime(place)
        return place

    def fetch_model_tags(
        self, url: str, *, name: str, credential: str | None = None, local: bool = False, named_by_site: bool = False
    ) -> None:
        """Fetch the tags of published models; arguments and errors as of `fetch`."""
        environment = self._environment(url, local=local, named_by_site=named_by_site, credential=credential)
        with self._locked(name) as folder:
            trouble = self._mirror(folder).fetch(url, [_MODEL_TAGS], environment)
        if trouble:
            raise StorageError(f"{name}: could not fetch the tags of models from {url}: {trouble}")

    def push_model_tags(
        self, url: str, *, name: str, credential: str | None = None, local: bool = False, named_by_site: bool = False
    ) -> None:
        """Create the tags of published models at the other side; a tag that is there already is never moved.

        Raises:
            StorageError: The other side does not answer, refuses, or has another tag of such a name.
        """
        environment = self._environment(url, local=local, named_by_site=named_by_site, credential=credential)
        with self._locked(name) as folder:
            arguments = ("push", "--porcelain", "--", url, _MODEL_TAGS)
            done = run_remote_git(folder / "mirror.git", *arguments, environ=environment, limits=self._limits)
        if done.returncode:
            refused = [line for line in done.text.split("\n") if line.startswith("!")]
            why = clean("; ".join(refused), limit=300) or done.message
            raise StorageError(f"{name}: tags of models could not be pushed to {url}: {why}")

    def changed(self, name: str, old: str, new: str) -> list[str] | None:
        """Paths that differ between two commits; None where the mirror does not hold both, or they are too many."""
        if not all(is_commit(each) for each in (old, new)):
            return None
        try:
            return self._mirror(self._folder(name)).changed(old, new)
        except OutputTooLarge:
            return None

    def is_ancestor(self, name: str, commit: str, of: str) -> bool:
        """Is `commit` part of the history that leads to `of`?"""
        mirror = self._mirror(self._folder(name))
        both = is_commit(commit) and is_commit(of)
        return both and mirror.ask("merge-base", "--is-ancestor", commit, of).returncode == 0

    def heads(self, url: str, *, local: bool = False) -> dict[str, str]:
        """Commit of each branch of a repository by name; raises as `fetch` does."""
        environment = self._environment(url, local=local, credential=None)
        arguments = ("ls-remote", "--heads", "--end-of-options", url)
        done = run_remote_git(Path("/"), *arguments, environ=environment, limits=self._limits)
        if done.returncode:
            raise StorageError(f"could not list the branches of {url}: {done.message}")
        rows = (line.split("\t", 1) for line in done.text.split("\n") if line)
        return {name: commit for commit, name in rows}

    def release(self, *, idle_seconds: float, keep: Collection[Path] = ()) -> list[Path]:
        """Remove repositories of commits not used for `idle_seconds`, except those of `keep`; returns them."""
        gone: list[Path] = []
        for folder in sorted(self.home.glob("*/commits")):
            with self._locked(folder.parent.name):
                for place in sorted(folder.iterdir()):
                    if place not in keep and time.time() - place.stat().st_mtime >= idle_seconds:
                        self._mirror(folder.parent).ask("update-ref", "-d", kept_ref(place.name))
                        shutil.rmtree(place)
                        gone.append(place)
        return gone

    def _environment(self, url: str, *, credential: str | None, **server: bool) -> dict[str, str]:
        return remote_environment(url, credential=credential, resolve=self._resolve, **server)

    def _folder(self, name: str) -> Path:
        if not _NAME.match(name):
            raise UsageError(f"wanted letters, digits, dots and dashes as the name of a clone, found {name[:80]!r}")
        return self.home / name

    def _mirror(self, folder: Path) -> GitMirror:
        return GitMirror(path=folder / "mirror.git", most_bytes=self._most_bytes, is_over=self.is_over)

    @property
    def _limits(self) -> ProcessLimits:
        return ProcessLimits(
            seconds=FETCH_SECONDS, most_bytes=MOST_LISTED_BYTES, memory_bytes=MEMORY_BYTES, is_over=self.is_over
        )

    @contextmanager
    def _locked(self, name: str) -> Iterator[Path]:
        """The folder of `name`, for one thread of one process; ends with its holder, also by a kill."""
        folder = self._folder(name)
        with storage_errors(folder):
            (folder / "commits").mkdir(parents=True, exist_ok=True)
            with (folder / "lock").open("ab") as lock:
                self._take(lock, name)
                yield folder

    def _take(self, lock: IO[bytes], name: str) -> None:
        deadline = time.monotonic() + self._wait_seconds
        while True:
            try:
                return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if self.is_over():
                    raise ProcessStopped(f"{name}: the order was cancelled while it waited for its clone") from None
                if time.monotonic() > deadline:
                    raise CloneBusy(f"{name}: its clone is in use by another order") from None
                time.sleep(LOOK_SECONDS)
