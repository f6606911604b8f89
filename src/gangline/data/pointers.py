"""Files that a commit names by digest instead of holding them: `.dvc` files, `dvc.lock`, Git LFS. Pure readers.

Nothing of DVC is imported or run. What is read here decides only which digests are wanted; a digest is checked by
`data.tracked_files`. A repository never says which machine is asked: its remote counts only as far as the URL of a
source of the site is a prefix of it, and all that is read is below that source.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import SplitResult, unquote, urlsplit

from gangline.errors import ConfigError
from gangline.spec.config.problems import printable, refusal
from gangline.units import format_bytes

Digest = Literal["md5", "md5-dos2unix", "sha256"]
"""`md5-dos2unix` is how DVC before 3.0 counts: ends of lines of text as on Unix. `sha256` is that of Git LFS."""
DVC_FILE, LOCK, STAGES = ".dvc", "dvc.lock", "dvc.yaml"
MOST_DVC_FILE_BYTES, MOST_LOCK_BYTES = 1 << 20, 8 << 20
"""Read at most, before anything is parsed."""
MOST_FILES = 100_000
"""Files of one commit."""
_DEEPEST = 20
"""Tables and lists in each other; DVC nests four."""
MD5 = re.compile(r"[0-9a-f]{32}")
_FOLDER = ".dir"
"""End of the md5 of a folder, which is that of a list of its files."""
_VERSIONED = ("cloud", "files")
"""Keys of outputs in a remote of `version_aware`, whose files lie there by their own names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pointer:
    """One file or folder that a commit names by digest."""

    path: str
    """Path of the file or folder, from where the pointing file's path begins."""
    kind: Digest
    digest: str
    """Hex digits; of a folder that of its list."""
    size_bytes: int | None = None
    """Bytes of the file, or of all files of the folder, where the pointing file says it."""
    is_folder: bool = False
    num_files: int | None = None
    remote: str | None = None
    """Remote of DVC by name; none: the default one of `.dvc/config`."""
    pointed_by: str
    """Path of the pointing file: `data/train.csv.dvc`, `dvc.lock`; of Git LFS the file's own."""
    is_output: bool = False
    """A stage of `dvc.yaml` writes it; such files are fetched only where the line names them."""

    @property
    def tool(self) -> str:
        """Name of the tool that put the pointer there."""
        return "Git LFS" if self.kind == "sha256" else "DVC"

    @property
    def shown(self) -> str:
        """`md5 ab12...` as messages name it."""
        return f"{self.kind.partition('-')[0]} {self.digest}{_FOLDER if self.is_folder else ''}"


def is_dvc_file(path: str) -> bool:
    """Whether a path has the name of a pointing file of DVC: `data/train.csv.dvc`, but not the folder `.dvc`."""
    return path.endswith(DVC_FILE) and posixpath.basename(path) != DVC_FILE


def read_dvc_file(path: str, data: bytes) -> list[Pointer]:
    """Outputs of the file at `path`, which ends with `.dvc`.

    Raises:
        ConfigError: It is too large, no YAML of DVC, or an output lies outside of the repository.
    """
    plain = _yaml(path, data, most_bytes=MOST_DVC_FILE_BYTES)
    folder = posixpath.join(posixpath.dirname(path), _text(plain.get("wdir")) or ".")
    return list(_outputs(path, plain.get("outs"), folder=folder))


def read_lock(path: str, data: bytes, stages: bytes | None) -> list[Pointer]:
    """Outputs of all stages in the `dvc.lock` at `path`.

    Args:
        path: Path of the lock.
        data: Bytes of the lock.
        stages: `dvc.yaml` of the same folder, which says where its stages run; none: all run in that folder.

    Raises:
        ConfigError: One of the files is too large or no YAML of DVC, or an output lies outside of the repository.
    """
    plain = _yaml(path, data, most_bytes=MOST_LOCK_BYTES)
    yaml = _yaml(posixpath.join(posixpath.dirname(path), STAGES), stages or b"{}", most_bytes=MOST_DVC_FILE_BYTES)
    declared = _table(yaml.get("stages"))
    pointers: list[Pointer] = []
    for name, stage in _table(plain.get("stages", plain)).items():  # locks of schema 1.0 have no table of stages
        of_stage = _table(declared.get(str(name).partition("@")[0]))
        of_stage = _table(of_stage.get("do", of_stage))  # a stage with `foreach`
        folder = posixpath.join(posixpath.dirname(path), _text(of_stage.get("wdir")) or ".")
        pointers += _outputs(path, _table(stage).get("outs"), folder=folder, is_output=True)
        require_few(path, len(pointers))
    return pointers


def _outputs(file: str, outputs: Any, *, folder: str, is_output: bool = False) -> Iterator[Pointer]:
    outs = outputs if isinstance(outputs, list) else []
    require_few(file, len(outs))
    for plain in map(_table, outs):
        path = _text(plain.get("path"))
        if not path or "://" in path or plain.get("cache") in ("false", "False"):
            continue  # a file in a bucket, or one that git holds
        place = posixpath.normpath(posixpath.join(folder, path))
        if place.startswith(("../", "/")) or place in ("..", "."):
            raise refusal(f"{file}: wanted outputs inside the repository, found {path[:200]!r}; move the file into it")
        if any(key in plain for key in _VERSIONED):
            raise refusal(
                f"{file}: wanted an output by md5, found {path[:200]} of a remote with version_aware, which is not"
                f" read; dvc remote modify NAME version_aware false and dvc push, or leave {file} out by"
                " project.exclude"
            )
        digest, is_folder = _md5_of(file, place, plain)
        yield Pointer(
            path=place, kind="md5" if plain.get("hash") == "md5" else "md5-dos2unix", digest=digest,
            size_bytes=_count(plain.get("size")), is_folder=is_folder, num_files=_count(plain.get("nfiles")),
            remote=_text(plain.get("remote")), pointed_by=file, is_output=is_output,
        )  # fmt: skip


def _md5_of(file: str, place: str, plain: Mapping[Any, Any]) -> tuple[str, bool]:
    text = _text(plain.get("md5")) or ""
    digest = text.removesuffix(_FOLDER)
    if not MD5.fullmatch(digest) or plain.get("hash", "md5") != "md5":
        found = f"hash {plain.get('hash')}" if plain.get("hash", "md5") != "md5" else text[:60] or "none"
        raise refusal(f"{file}: wanted the md5 of {place}, found {found}; dvc commit writes it, or leave {file} out by"
                      " project.exclude")  # fmt: skip
    return digest, digest != text


def _yaml(file: str, data: bytes, *, most_bytes: int) -> dict[Any, Any]:
    """A table of texts, lists and tables: versions of YAML take a file named `on` for different things.

    Aliases, which can grow a small file without bound, tags and deep nesting are refused before anything is made.
    """
    if len(data) > most_bytes:
        most, found = format_bytes(most_bytes), format_bytes(len(data))
        raise refusal(f"{file}: wanted at most {most} of YAML, found {found}; leave it out by project.exclude")
    try:
        import yaml
    except ImportError as error:
        raise ConfigError(f"{printable(file)}: nothing here reads YAML; pip install 'gangline[data]'") from error
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        depth = 0
        for event in yaml.parse(data, loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            is_alias, has_tag = isinstance(event, yaml.AliasEvent), getattr(event, "tag", None) is not None
            if is_alias or has_tag or depth > _DEEPEST:
                what = "an alias" if is_alias else "a tag" if has_tag else f"more than {_DEEPEST} levels"
                raise refusal(f"{file}: wanted YAML as DVC writes it, found {what}; dvc commit writes the file again")
        plain = yaml.load(data, loader)  # noqa: S506  # it makes texts, lists and tables alone
    except (yaml.YAMLError, ValueError, RecursionError, UnicodeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise refusal(f"{file}: wanted YAML of DVC, found something else: {reason}") from error
    if not isinstance(plain, dict):
        raise refusal(f"{file}: wanted a table of DVC, found {type(plain).__name__}")
    return plain


def _table(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: Any) -> int | None:
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 19 else None


def require_few(file: str, count: int) -> None:
    """Raises ConfigError for more files than a commit may have."""
    if count > MOST_FILES:
        raise refusal(f"{file}: wanted at most {MOST_FILES} files of DVC and Git LFS, found {count}; use data sets")


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
