"""Resolves `data.text` and `data.shards` of a line to files with digests.

Text is globs over the commit and installed packages, and keys of the store; shards are named by manifests, objects of
the store, and are not read here. The caller opens the tree of the commit, never the working folder, and the store.
Sizes are summed before anything is read.
"""

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from gangline.errors import IntegrityError
from gangline.git.objects import substitute
from gangline.spec.codec import digest, from_plain
from gangline.spec.config.data_keys import DataAccess
from gangline.spec.config.problems import refusal
from gangline.spec.data_source import DataFile, DataSource
from gangline.spec.globs import is_inside, matches
from gangline.storage.objects.protocol import ObjectStore, get_bounded
from gangline.units import format_bytes

MOST_BYTES = 1 << 30
"""Limit of all text together; larger data belong into shards, which are not read here."""
MOST_FILES = 100_000


@dataclass(frozen=True, slots=True)
class ReadableFile:
    """A file with its size and a function that reads it."""

    size_bytes: int
    read: Callable[[], bytes]
    stored: str | None = None
    """Key of the blob that has it already; then it is not read."""


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file of text and its bytes."""

    path: str
    """Path for the task: `repo/src/a.py`, `package/gangline/units.py`, `store/data/a.txt`."""
    data: bytes
    stored: DataFile | None = None
    """Entry of a file that is in the store already, without bytes here."""

    @property
    def sha256(self) -> str:
        """Hex digest of the bytes."""
        return sha256(self.data).hexdigest()

    @property
    def entry(self) -> DataFile:
        """Entry of the file in a plan."""
        return self.stored or DataFile(path=self.path, key=f"blobs/sha256/{self.sha256}", size_bytes=len(self.data))


def resolve_text(
    patterns: Sequence[str],
    *,
    tracked: Mapping[str, ReadableFile | None],
    access: DataAccess,
    package_root: Callable[[str], Path | None] | None = None,
    store: ObjectStore | None = None,
) -> list[TextFile]:
    """Files that match the patterns, each once, sorted by path.

    Args:
        patterns: `repo:src/**/*.py`, `package:gangline/**/*.py`, or a key of the store.
        tracked: Files of the commit by path; None for links and submodules.
        access: Keys and packages that the line may name.
        package_root: Folder of an installed package by name; None: `installed_package`.
        store: None: patterns may not name keys.

    Raises:
        ConfigError: A pattern matches nothing, leaves its root, matches a link or is not allowed; all files are empty;
            or there are too many.
    """
    roots = _Roots(tracked, access, package_root or installed_package, store)
    found: dict[str, ReadableFile] = {}
    for index, pattern in enumerate(patterns):
        matched = dict(roots.matching(f"data.text[{index}]", pattern))
        if not matched:
            where = f"none among {len(tracked)} of the commit" if pattern.startswith("repo:") else "none in the package"
            works = "commit the files, or widen the glob (** matches any number of folders)"
            raise refusal(f"data.text: wanted files for {pattern}, found {where}; {works}")
        found = matched | found
        _demand_bounded(pattern, found)
    if patterns and not any(source.size_bytes for source in found.values()):
        raise refusal(f"data.text: wanted text, found {len(found)} empty files; name files with content")
    texts = [_text_file(path, found[path]) for path in sorted(found)]
    for text in texts:
        _refuse_pointer(text)
    return texts


def data_source(
    files: Sequence[DataFile], *, holdout: float, demanded: str | None = None, tracked: Sequence[DataFile] = ()
) -> DataSource:
    """Resolved data of a plan, with a digest over the sorted (path, sha256, size).

    Args:
        files: Files of the data folder.
        holdout: Tail that is kept for evaluation.
        demanded: Digest that the line demands.
        tracked: Files that DVC or Git LFS track, at their paths in the code.

    Raises:
        ConfigError: `demanded`, which is data.digest of the line, differs.
    """
    ordered = tuple(sorted(files, key=lambda file: file.path))
    placed = tuple(sorted(tracked, key=lambda file: file.path))
    named = [
        *((data_file.path, data_file) for data_file in ordered),
        *((f"code/{data_file.path}", data_file) for data_file in placed),
    ]
    total = digest([(path, file.key.rpartition("/")[2], file.size_bytes) for path, file in named])
    if demanded is not None and demanded != total:
        raise refusal(f"data.digest: wanted {demanded}, found {total}; restore the files, or set this digest")
    return DataSource(files=ordered, digest=total, holdout=holdout, tracked=placed)


def installed_package(name: str) -> Path | None:
    """Folder of a package, found without importing it; None for namespace packages, and for a package in a package.

    Of those Python would import the outer one to find it.
    """
    if "." in name:
        return None
    try:
        spec = find_spec(name)
    except ValueError:  # a module without a spec, such as __main__
        return None
    places = list(spec.submodule_search_locations or ()) if spec and spec.has_location else []
    return Path(places[0]) if places else None


@dataclass(frozen=True, slots=True)
class _Roots:
    """Files that the patterns of a line may match."""

    tracked: Mapping[str, ReadableFile | None]
    access: DataAccess
    package_root: Callable[[str], Path | None]
    store: ObjectStore | None

    def matching(self, place: str, pattern: str) -> Iterator[tuple[str, ReadableFile]]:
        scheme, colon, rest = pattern.partition(":")
        if not colon:
            return self._from_store(place, pattern)
        if not is_inside(rest):
            raise refusal(f"{place}: wanted a path that stays inside, found {pattern}; write it relative, without ..")
        if scheme == "repo":
            return self._from_tree(place, rest)
        if scheme == "package":
            return self._from_package(place, rest)
        raise refusal(f"{place}: wanted repo: or package:, found {pattern}; repo:src/**/*.py works")

    def _from_tree(self, place: str, glob: str) -> Iterator[tuple[str, ReadableFile]]:
        for path, source in self.tracked.items():
            if not matches(path, glob):
                continue
            if source is None or not is_inside(path):
                raise refusal(f"{place}: wanted regular files, found {path}, a link or submodule; narrow the glob")
            yield f"repo/{path}", source

    def _from_package(self, place: str, rest: str) -> Iterator[tuple[str, ReadableFile]]:
        name, _, glob = rest.partition("/")
        self.access.demand_package(place, name)
        root = self.package_root(name)
        if root is None:
            raise refusal(f"{place}: wanted an installed package, found no package {name}; install it, or name another")
        for file in _files_below(root):
            path = file.relative_to(root).as_posix()
            if matches(path, glob or "**"):
                yield f"package/{name}/{path}", _installed(place, file, root)

    def _from_store(self, place: str, key: str) -> Iterator[tuple[str, ReadableFile]]:
        self.access.demand_key(place, key)
        entry = self.store.head(key) if self.store else None
        if self.store is None or entry is None:
            raise refusal(f"{place}: wanted an object {key} in the store, found none; upload it first")
        yield f"store/{key}", ReadableFile(entry.size_bytes, partial(_stored, self.store, key, entry.size_bytes))


def _files_below(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(each for each in folders if each != "__pycache__")
        yield from (Path(folder, name) for name in sorted(names))


def _installed(place: str, file: Path, root: Path) -> ReadableFile:
    """A regular file of a package; links may lead to other files of the same package."""
    if not file.resolve().is_relative_to(root.resolve()) or not stat.S_ISREG((status := file.stat()).st_mode):
        raise refusal(f"{place}: wanted regular files, found {file}, which links outside the package; narrow the glob")
    return ReadableFile(status.st_size, file.read_bytes)


def _stored(store: ObjectStore, key: str, size_bytes: int) -> bytes:
    blob = get_bounded(store, key, most_bytes=size_bytes)
    if blob is None:
        raise refusal(f"data.text: {key} was deleted from the store; upload it again")
    return blob.data


def _text_file(path: str, file: ReadableFile) -> TextFile:
    if file.stored is not None:
        return TextFile(path, b"", DataFile(path=path, key=file.stored, size_bytes=file.size_bytes))
    return TextFile(path, file.read())


def _demand_bounded(pattern: str, found: Mapping[str, ReadableFile]) -> None:
    total = sum(source.size_bytes for source in found.values() if source.stored is None)
    if len(found) > MOST_FILES:
        raise refusal(f"data.text: {pattern}: wanted at most {MOST_FILES} files, found {len(found)}; use data.shards")
    if total > MOST_BYTES:
        most, size = format_bytes(MOST_BYTES), format_bytes(total)
        raise refusal(f"data.text: {pattern}: wanted at most {most} of text, found {size}; use data.shards")


def _refuse_pointer(text: TextFile) -> None:
    if found := substitute(text.data):
        raise refusal(
            f"data.text: wanted the text of {text.path}, found {found}: its content is not in the commit;"
            " upload the file and name it by its key of the store, or commit the text itself"
        )


MOST_SHARDS = 100_000
MOST_MANIFEST_BYTES = 16 << 20
"""Limit of all manifests of a line together."""
_BLOB = re.compile(r"blobs/sha256/[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """A data file in a store, by the digest of its content."""

    key: str
    """`blobs/sha256/<digest>`; the content must have this digest."""
    size_bytes: int
    path: str | None = None
    """File name for the task; None: by its position in the manifest."""


def resolve_shards(manifests: Sequence[str], *, store: ObjectStore, access: DataAccess) -> list[DataFile]:
    """Files of the manifests, in their order: each is a JSON list of `{"key", "size_bytes", "path"?}`.

    A manifest may name any blob by its digest; `access` limits the manifests that a line may name.

    Args:
        manifests: Keys of the store.
        store: Has them.
        access: Keys that the line may name.

    Raises:
        ConfigError: A manifest is not allowed, missing, invalid or too large; two shards have one path; or there are
            too many shards.
    """
    files: dict[str, DataFile] = {}
    left = MOST_MANIFEST_BYTES
    for number, manifest in enumerate(manifests):
        access.demand_key(f"data.shards[{number}]", manifest)
        data = _fetch(store, manifest, most_bytes=left)
        left -= len(data)
        for place, shard in enumerate(_read(manifest, data)):
            name = shard.path or f"{number:03d}-{place:06d}"
            if name in files:
                raise refusal(
                    f"data.shards: {manifest}: wanted one shard for each path, found two for {name}; rename one"
                )
            files[name] = DataFile(path=f"shards/{name}", key=shard.key, size_bytes=shard.size_bytes)
        if len(files) > MOST_SHARDS:
            raise refusal(f"data.shards: {manifest}: wanted at most {MOST_SHARDS} shards, found more; make them larger")
    return list(files.values())


def _fetch(store: ObjectStore, manifest: str, *, most_bytes: int) -> bytes:
    try:
        blob = get_bounded(store, manifest, most_bytes=most_bytes)
    except IntegrityError as error:
        most = format_bytes(MOST_MANIFEST_BYTES)
        raise refusal(
            f"data.shards: {manifest}: wanted at most {most} of manifests together, found more; make shards larger"
        ) from error
    if blob is None:
        raise refusal(f"data.shards: wanted a manifest at {manifest}, found nothing; upload it first")
    return blob.data


def _read(manifest: str, data: bytes) -> list[Shard]:
    try:
        plain = json.loads(data)
        shards = [from_plain(Shard, each) for each in plain] if isinstance(plain, list) else []
    except (ValueError, RecursionError, IntegrityError) as error:
        raise refusal(f'data.shards: {manifest}: wanted a list of {{"key", "size_bytes"}}: {error}') from error
    if not shards:
        raise refusal(f"data.shards: {manifest}: wanted a JSON list of shards, found none in it")
    for shard in shards:
        _check(manifest, shard)
    return shards


def _check(manifest: str, shard: Shard) -> None:
    if not _BLOB.fullmatch(shard.key) or shard.size_bytes < 0:
        found = f"{shard.key[:90]} of {shard.size_bytes} bytes"
        raise refusal(f"data.shards: {manifest}: wanted blobs/sha256/<digest> with its size, found {found}")
    if shard.path is not None and not is_inside(shard.path):
        raise refusal(f"data.shards: {manifest}: wanted a path that stays inside, found {shard.path[:90]!r}")
