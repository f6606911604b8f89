"""Git tag of a version: an annotated tag on the trained commit that holds the digest of `<version>.json`.

A tag is created in this repository and never moved. The remote `origin` is contacted only through `TagRemote`, which
is opened where the line (`publish.push`) or a person's command requests it. The same version gives the same tag
object, so a retry, another clone and the remote can be compared by object name.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import IntegrityError, StorageError
from gangline.git.bounded_process import ProcessLimits
from gangline.git.command import GitResult, GitTimeout, own_environment, run_git
from gangline.git.mirror import ORIGIN_IS_MIRROR
from gangline.registry.versions import Version, tag_name, version_digest

REMOTE = "origin"
REMOTE_SECONDS = 5.0
"""Time limit of one answer of a remote; after the first timeout the remote is not contacted again."""
TIMEOUT_SECONDS = 60.0
"""Time limit of git on this disk."""
_HIGHEST = "gangline.{model}.highestVersion"
"""git setting of a repository without tags: the highest version number of the repository that it was made from."""
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")
_QUERY = re.compile(r"(://[^\s?]*)\?\S*")
_TIMED_OUT_CODE = 124
"""Note of a result without an answer of the remote."""
_DIGEST = re.compile(r"^version-digest: ([0-9a-f]{64})$", re.MULTILINE)
_OBJECT = re.compile(r"[0-9a-f]{40,64}")
_SETTINGS = {"tag.gpgSign": "false", "push.gpgSign": "false", "push.followTags": "false"}
_ENVIRONMENT = {"GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh", "GIT_SSH_COMMAND": "ssh -o BatchMode=yes"}


@dataclass(frozen=True, slots=True)
class Tag:
    """An annotated tag of this repository."""

    name: str
    object: str
    commit: str
    digest: str | None
    """Digest of the version's file; None where the message has none."""


class TagRemote:
    """The remote `origin` of a repository; after one timeout it is not contacted again."""

    def __init__(self, repo: Path, *, is_mirror: bool) -> None:
        self.repo = repo
        self.is_mirror = is_mirror
        """It is a mirror that gangline made on this machine, so a push sends nothing to another machine."""
        self._seconds = TIMEOUT_SECONDS if is_mirror else REMOTE_SECONDS
        self._timed_out: GitResult | None = None

    @property
    def urls(self) -> str:
        """Where git pushes to, without credentials."""
        found = _git_output(self.repo, "remote", "get-url", "--push", "--all", REMOTE).split("\n")
        return ", ".join(_without_credentials(url) for url in found if url)

    def refs(self, pattern: str) -> dict[str, str] | None:
        """Object by name of each ref that matches; None where the remote does not answer."""
        done = self.run_git("ls-remote", "--refs", REMOTE, pattern)
        if done.returncode:
            return None
        rows = (line.split("\t", 1) for line in done.text.split("\n") if line)
        return {ref: name for name, ref in rows}

    def run_git(self, *arguments: str) -> GitResult:
        """Run git in the repository; after a time-out of the remote, repeat that result."""
        if self._timed_out is not None:
            return self._timed_out
        done = _git(self.repo, *arguments, seconds=self._seconds)
        if done.returncode == _TIMED_OUT_CODE:
            self._timed_out = done
        return done


def open_remote(repo: Path, *, wanted: bool) -> TagRemote | None:
    """The remote if there is one and it is `wanted` or the mirror of this clone; else None."""
    is_mirror = _git(repo, "config", "--local", "--get", ORIGIN_IS_MIRROR).text.strip() == "true"
    if not (wanted or is_mirror) or REMOTE not in _git_output(repo, "remote").split():
        return None
    return TagRemote(repo, is_mirror=is_mirror)


def announcement(remote: TagRemote) -> str:
    """Sentence that the run prints before it pushes."""
    return f"publish.push: the tag of the version goes to the git remote {REMOTE}, {remote.urls}"


def store_highest_number(repo: Path, model: str, number: int) -> None:
    """Store the highest version of `model` that has a tag elsewhere in the settings of `repo`, which has no tags."""
    _git_output(repo, "config", "--local", _HIGHEST.format(model=model), str(number))


def taken_numbers(repo: Path, model: str, remote: TagRemote | None = None) -> set[int]:
    """Version numbers of tags here and on the remote; none of a remote that does not answer."""
    refs = _git_output(repo, "for-each-ref", "--format=%(refname)", f"refs/tags/model/{model}/").split()
    if remote is not None:
        refs += remote.refs(f"refs/tags/model/{model}/v*") or {}
    stored = _git(repo, "config", "--local", "--get", _HIGHEST.format(model=model)).text.split()
    numbers = [*(ref.rpartition("/v")[2] for ref in refs), *stored]
    return {int(number) for number in numbers if number.isdecimal()}


def create_tag(repo: Path, version: Version) -> Tag:
    """The tag of `version`, made now or by an earlier try.

    Raises:
        IntegrityError: A tag of that name is on another commit or has another digest.
    """
    name = tag_name(version.model, version.version)
    if read_tag(repo, name) is None:
        _write_tag(repo, name, version)
    tag = read_tag(repo, name)
    if tag is None:
        raise StorageError(f"git could not make the tag {name} in {repo}; check that {repo} is writable")
    check_tag(tag, version)
    return tag


def check_tag(tag: Tag, version: Version) -> None:
    """Raises IntegrityError unless `tag` is on the version's commit and has its digest."""
    if tag.commit != version.commit or tag.digest != version_digest(version):
        raise IntegrityError(
            f"tag {tag.name} has {(tag.digest or 'no digest')[:12]} on commit {tag.commit[:8]}, the store's"
            f" {version.key} is {version_digest(version)[:12]} on {version.commit[:8]}: one of the two was changed"
        )


def read_tag(repo: Path, name: str) -> Tag | None:
    """An annotated tag of this repository; None where there is none of that name."""
    done = _git(repo, "rev-parse", "--verify", "--quiet", "--end-of-options", f"refs/tags/{name}")
    found = done.text.strip()
    if done.returncode or not _OBJECT.fullmatch(found):
        return None
    commit = _git_output(repo, "rev-parse", "--verify", "--end-of-options", f"{found}^{{commit}}").strip()
    message = _git_output(repo, "cat-file", "-p", found) if found != commit else ""
    digest = _DIGEST.search(message)
    return Tag(name, found, commit, digest[1] if digest else None)


def push_tag(remote: TagRemote, tag: Tag) -> str | None:
    """Create `tag` on the remote; None once it exists there, else one sentence on why not and how to push it later.

    Raises:
        IntegrityError: The remote's tag of that name is another object.
    """
    ref = f"refs/tags/{tag.name}"
    done = remote.run_git("push", "--porcelain", f"--force-with-lease={ref}:", REMOTE, f"{ref}:{ref}")
    existing = remote.refs(ref)
    if existing is None or ref not in existing:
        why = _stderr_line(done)
        later = f"push it later: git push {REMOTE} {tag.name}"
        return f"tag {tag.name} was made here, {REMOTE} did not confirm it: {why}; {later}"
    if existing[ref] != tag.object:
        raise IntegrityError(f"{tag.name} is taken on {REMOTE} by {existing[ref][:12]}; here it is {tag.object[:12]}")
    return None


def fetch_tag(remote: TagRemote, name: str) -> Tag | None:
    """Fetch a tag that is missing here from the remote; None where the remote has none.

    Raises:
        StorageError: The remote does not answer.
    """
    done = remote.run_git("fetch", "--quiet", "--no-tags", REMOTE, f"refs/tags/{name}:refs/tags/{name}")
    tag = read_tag(remote.repo, name)
    if tag is None and remote.refs(f"refs/tags/{name}") is None:
        raise StorageError(f"there is no tag {name} here, and {REMOTE} does not answer: {_stderr_line(done)}")
    return tag


def _write_tag(repo: Path, name: str, version: Version) -> None:
    message = f"{version.model} {version.version}, run {version.run}\n\nversion-digest: {version_digest(version)}\n"
    identity = {"user.name": "gangline", "user.email": f"{version.key_id}@gangline.invalid"}
    date = {"GIT_COMMITTER_DATE": version.created}
    _git(repo, "tag", "--annotate", "-m", message, "--", name, version.commit, settings=identity, environ=date)


def _git_output(repo: Path, *arguments: str) -> str:
    done = _git(repo, *arguments)
    if done.returncode:
        raise StorageError(f"git {arguments[0]} failed in {repo}: {_stderr_line(done)}")
    return done.text


def _stderr_line(done: GitResult) -> str:
    complaint = done.stderr.decode(errors="replace")
    lines = [line for line in (*complaint.splitlines(), *done.text.splitlines()) if line.strip()]
    text = re.sub(r"[^\x20-\x7e]+", " ", " ".join(lines))
    return _without_credentials(text)[:200] or f"exit {done.returncode}"


def _without_credentials(text: str) -> str:
    return _QUERY.sub(r"\1", _CREDENTIALS.sub("", text))


def _git(
    repo: Path,
    *arguments: str,
    settings: dict[str, str] | None = None,
    environ: dict[str, str] | None = None,
    seconds: float = TIMEOUT_SECONDS,
) -> GitResult:
    own = own_environment(_ENVIRONMENT | (environ or {}))
    limits = ProcessLimits(seconds=seconds)
    try:
        return run_git(repo, *arguments, environ=own, settings=_SETTINGS | (settings or {}), limits=limits)
    except GitTimeout:
        return GitResult(_TIMED_OUT_CODE, b"", f"no answer within {seconds:.0f} s".encode())
