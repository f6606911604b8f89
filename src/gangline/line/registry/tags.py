"""The second leg of a version: an annotated git tag on the trained commit that holds the digest of `<version>.json`.

Tags are only ever created, here and on the remote `origin` where there is one. The same version gives the same tag
object, so a retry, another clone and the remote can be compared by object name.
"""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import IntegrityError, StorageError
from gangline.line.registry.types import Version, tag_name
from gangline.line.registry.versions import digest_of

REMOTE = "origin"
TIMEOUT_SECONDS = 60.0
_DIGEST = re.compile(r"^version-digest: ([0-9a-f]{64})$", re.MULTILINE)
_OBJECT = re.compile(r"[0-9a-f]{40,64}")
_OPTIONS = ("-c", "core.hooksPath=/dev/null", "-c", "tag.gpgSign=false", "-c", "push.gpgSign=false", "-c",
            "push.followTags=false", "-c", "color.ui=false", "-c", "core.fsmonitor=false")  # fmt: skip
_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh", "LC_ALL": "C.UTF-8",
                "GIT_SSH_COMMAND": "ssh -o BatchMode=yes"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tag:
    """An annotated tag, as it stands at the remote."""

    name: str
    object: str
    commit: str
    digest: str | None
    """Of the version's file; None where the message holds none: not ours."""


def taken_numbers(repo: Path, model: str) -> set[int]:
    """Version numbers that a tag here or on the remote has taken; an unreachable remote takes none."""
    refs = _ask(repo, "for-each-ref", "--format=%(refname)", f"refs/tags/model/{model}/").split()
    refs += _remote_refs(repo, f"refs/tags/model/{model}/v*") or {}
    numbers = (ref.rpartition("/v")[2] for ref in refs)
    return {int(number) for number in numbers if number.isdecimal()}


def create_tag(repo: Path, version: Version) -> Tag:
    """The tag of `version`, made now or by an earlier try.

    Raises:
        IntegrityError: A tag of that name stands for something else.
    """
    name = tag_name(version.model, version.version)
    if read_tag(repo, name) is None:
        _write_tag(repo, name, version)
    tag = read_tag(repo, name)
    if tag is None:
        raise StorageError(f"git could not make the tag {name} in {repo}; see that {repo} may be written")
    check_tag(tag, version)
    return tag


def check_tag(tag: Tag, version: Version) -> None:
    """Raises IntegrityError unless `tag` stands on the version's commit and holds its digest."""
    if tag.commit != version.commit or tag.digest != digest_of(version):
        raise IntegrityError(
            f"tag {tag.name} holds {(tag.digest or 'no digest')[:12]} on commit {tag.commit[:8]}, the store's"
            f" {version.key} is {digest_of(version)[:12]} on {version.commit[:8]}: one of the two was changed"
        )


def read_tag(repo: Path, name: str) -> Tag | None:
    """An annotated tag of this repository; None where there is none of that name."""
    done = _git(repo, "rev-parse", "--verify", "--quiet", "--end-of-options", f"refs/tags/{name}")
    found = done.stdout.strip()
    if done.returncode or not _OBJECT.fullmatch(found):
        return None
    commit = _ask(repo, "rev-parse", "--verify", "--end-of-options", f"{found}^{{commit}}").strip()
    message = _ask(repo, "cat-file", "-p", found) if found != commit else ""
    digest = _DIGEST.search(message)
    return Tag(name, found, commit, digest[1] if digest else None)


def has_remote(repo: Path) -> bool:
    return REMOTE in _ask(repo, "remote").split()


def push_tag(repo: Path, tag: Tag) -> str | None:
    """Create `tag` on the remote; None once it stands there, else one sentence why not.

    Raises:
        IntegrityError: The remote's tag of that name is another object: the name is taken.
    """
    ref = f"refs/tags/{tag.name}"
    done = _git(repo, "push", "--porcelain", f"--force-with-lease={ref}:", REMOTE, f"{ref}:{ref}")
    standing = _remote_refs(repo, ref)
    if standing is None:
        return f"tag {tag.name} could not be pushed: {_said(done)}"
    if ref not in standing:
        return f"tag {tag.name} could not be pushed: {_said(done)}; try: git push {REMOTE} {tag.name}"
    if standing[ref] != tag.object:
        raise IntegrityError(f"{tag.name} is taken on {REMOTE} by {standing[ref][:12]}, ours is {tag.object[:12]}")
    return None


def remote_tag_object(repo: Path, name: str) -> str | None:
    """Object name of the remote's tag; None where it has none.

    Raises:
        StorageError: The remote does not answer.
    """
    standing = _remote_refs(repo, f"refs/tags/{name}")
    if standing is None:
        raise StorageError(f"wanted to read the tag {name} from {REMOTE}, it does not answer; try again")
    return standing.get(f"refs/tags/{name}")


def fetch_tag(repo: Path, name: str) -> None:
    """Bring the remote's tag here; one that stands here is never moved."""
    _git(repo, "fetch", "--quiet", "--no-tags", REMOTE, f"refs/tags/{name}:refs/tags/{name}")


def _write_tag(repo: Path, name: str, version: Version) -> None:
    message = f"{version.model} {version.version}, run {version.run}\n\nversion-digest: {digest_of(version)}\n"
    identity = ("-c", "user.name=gangline", "-c", f"user.email={version.key_id}@gangline.invalid")
    date = {"GIT_COMMITTER_DATE": version.created}
    _git(repo, "tag", "--annotate", "-m", message, "--", name, version.commit, options=identity, env=date)


def _remote_refs(repo: Path, pattern: str) -> dict[str, str] | None:
    """Refs of the remote by name; empty without a remote, None where it does not answer."""
    if not has_remote(repo):
        return {}
    done = _git(repo, "ls-remote", "--refs", REMOTE, pattern)
    if done.returncode:
        return None
    rows = (line.split("\t", 1) for line in done.stdout.splitlines())
    return {ref: found for found, ref in rows}


def _ask(repo: Path, *arguments: str) -> str:
    done = _git(repo, *arguments)
    if done.returncode:
        raise StorageError(f"git {arguments[0]} failed in {repo}: {_said(done)}")
    return done.stdout


def _said(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in (*done.stderr.splitlines(), *done.stdout.splitlines()) if line.strip()]
    return re.sub(r"[^\x20-\x7e]+", " ", " ".join(lines))[:200] or f"exit {done.returncode}"


def _git(
    repo: Path, *arguments: str, options: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    command = ["git", *_OPTIONS, *options, *arguments]
    try:
        return subprocess.run(
            command, cwd=repo, env={**inherited, **_ENVIRONMENT, **(env or {})}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", check=False, timeout=TIMEOUT_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"no answer within {TIMEOUT_SECONDS:.0f} s")
