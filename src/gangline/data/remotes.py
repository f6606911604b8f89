"""Remotes that a repository names for DVC, and the sources of the site that they lie in. Pure.

A repository never says which machine is asked: its remote counts only as far as the URL of a source of the site is a
prefix of it, and all that is read is below that source.
"""

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from gangline.spec.config.problems import refusal

CONFIG = ".dvc/config"
MOST_CONFIG_BYTES = 64 << 10
_REMOTE = re.compile(r"'?remote \"(?P<name>[^\"]+)\"'?")


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteFolder:
    """A remote inside a source of the site."""

    source: str
    """Name of the source."""
    folder: str
    """Path below the URL of the source; empty: the source itself."""
    url: str
    """URL of the remote, as messages name it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DvcRemotes:
    """Remotes of a `.dvc/config`."""

    default: str | None = None
    urls: Mapping[str, str] = field(default_factory=dict)
    versioned: frozenset[str] = frozenset()
    """Remotes of `version_aware` or `worktree`, which hold files by their names."""

    def url_of(self, name: str | None) -> str:
        """URL of a remote, the default one without a name.

        Raises:
            ConfigError: The repository names no such remote, or one that holds no files by digest.
        """
        wanted = name or self.default
        if wanted is None or wanted not in self.urls:
            asked = f"a remote {wanted!r}" if wanted else "a default remote (core.remote)"
            known = ", ".join(sorted(self.urls)[:5]) or "none"
            raise refusal(f"{CONFIG}: wanted {asked}, found: {known}; dvc remote add --default NAME URL, and commit it")
        if wanted in self.versioned:
            raise refusal(
                f"{CONFIG}: wanted a remote that holds files by md5, found {wanted!r} with version_aware or worktree;"
                " dvc push to another one"
            )
        return self.urls[wanted]


def read_remotes(data: bytes) -> DvcRemotes:
    """Remotes of the bytes of a `.dvc/config`.

    Raises:
        ConfigError: It is too large, or no configuration.
    """
    if len(data) > MOST_CONFIG_BYTES:
        raise refusal(f"{CONFIG}: wanted a configuration of DVC, found {len(data)} bytes; move its comments elsewhere")
    import configparser  # most repositories have no remote of DVC

    parser = configparser.ConfigParser(interpolation=None, strict=False, inline_comment_prefixes=("#",))
    try:
        parser.read_string(data.decode())
    except (ValueError, configparser.Error) as error:
        reason = str(error).splitlines()[0]
        raise refusal(f"{CONFIG}: wanted a configuration of DVC, found something else: {reason}") from error
    tables = {match["name"]: parser[name] for name in parser.sections() if (match := _REMOTE.fullmatch(name))}
    core = parser["core"] if parser.has_section("core") else {}
    return DvcRemotes(
        default=_plain(core.get("remote")),
        urls={name: url for name, table in tables.items() if (url := _plain(table.get("url")))},
        versioned=frozenset(
            name for name, table in tables.items()
            if any((_plain(table.get(key)) or "").lower() == "true" for key in ("version_aware", "worktree"))
        ),
    )  # fmt: skip


def folder_of(url: str, sources: Mapping[str, str], *, base: str) -> RemoteFolder | None:
    """The source that a remote lies in, the one with the longest URL; None: none of the site has it.

    Args:
        url: URL of the remote, or a folder.
        sources: URLs by the names of their sources; the endpoint of a bucket is the site's, and no part of its place.
        base: Absolute path that a relative folder begins at.
    """
    wanted = _location(url, base=base)
    if wanted is None:
        return None
    found: dict[str, RemoteFolder] = {}
    for name, of_source in sources.items():
        own = _location(of_source.partition("?")[0] if of_source.startswith("s3://") else of_source, base="/")
        if own is None or own[:2] != wanted[:2] or not f"{wanted[2]}/".startswith(f"{own[2].rstrip('/')}/"):
            continue
        inside = wanted[2][len(own[2].rstrip("/")) :].strip("/")
        found[own[2]] = RemoteFolder(source=name, folder=inside, url=f"[source.{name}] {url}")
    return found[max(found, key=len)] if found else None


def source_url(url: str, base: str) -> str:
    """URL of the source that a remote would be read by; a relative folder begins at `base`."""
    return url if "://" in url else f"file://{posixpath.normpath(posixpath.join(base, url.removeprefix('file:')))}"


def _location(url: str, *, base: str) -> tuple[str, str, str] | None:
    """(scheme, host with port, path); None: a URL with a query, or whose path leads up."""
    try:
        parts = urlsplit(url) if "://" in url or url.startswith("file:") else SplitResult("file", "", url, "", "")
    except ValueError:
        return None
    path = unquote(parts.path)
    if parts.scheme == "file":
        return "file", "", posixpath.normpath(posixpath.join(base, path))
    if parts.query or parts.fragment or ".." in path.split("/"):
        return None
    return parts.scheme, parts.netloc.lower(), posixpath.normpath(f"/{path.lstrip('/')}")


def _plain(value: str | None) -> str | None:
    """A value without its quotation marks; None for an empty one."""
    text = (value or "").strip()
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return (text[1:-1] if quoted else text) or None
