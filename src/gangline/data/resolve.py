"""`data.text` of a line to files with digests: globs over the commit's own tree, over installed packages, store keys.

It reads what it is handed: the line opens the tree of the commit, never the working folder, and the store.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from gangline.spec.codec import digest
from gangline.spec.globs import matches
from gangline.spec.grammar import is_inside
from gangline.spec.plan import DataFile, DataSource
from gangline.spec.problems import refusal
from gangline.units import format_bytes

Reader = Callable[[], bytes]
MOST_BYTES = 1 << 30
"""Of all text together: more belongs into shards, which are not read to be named."""


@dataclass(frozen=True, slots=True)
class TextFile:
    path: str
    """As the task sees it: `repo/src/a.py`, `package/gangline/units.py`, `store/corpora/a.txt`."""
    data: bytes

    @property
    def sha256(self) -> str:
        return sha256(self.data).hexdigest()

    @property
    def entry(self) -> DataFile:
        """How a plan names it."""
        return DataFile(path=self.path, key=f"blobs/sha256/{self.sha256}", size_bytes=len(self.data))


def resolve_text(
    patterns: Sequence[str],
    *,
    tracked: Mapping[str, Reader | None],
    package_root: Callable[[str], Path | None] | None = None,
    stored: Callable[[str], bytes | None] | None = None,
) -> list[TextFile]:
    """Files that the patterns name, each once, sorted by path.

    Args:
        patterns: `repo:src/**/*.py`, `package:gangline/**/*.py`, or a key of the store.
        tracked: Every path of the commit with its reader; None for what is no regular file (a link, a submodule).
        package_root: Folder of an installed package by name; None: as Python finds it.
        stored: Object of the store by key; None where the caller has no store.

    Raises:
        ConfigError: A pattern that matches nothing, leaves its root or meets a link; nothing but empty files; too much.
    """
    files: dict[str, TextFile] = {}
    total = 0
    for pattern in patterns:
        count = 0
        for path, read in _matching(pattern, tracked, package_root or installed_package, stored):
            count += 1
            if path in files:
                continue
            files[path] = TextFile(path, read())
            total += len(files[path].data)
            _require_small(pattern, total)
        if not count:
            raise refusal(_nothing(pattern, tracked))
    if patterns and not total:
        raise refusal(f"data.text: wanted text, found {len(files)} empty files; name files with content")
    return [files[path] for path in sorted(files)]


def data_source(files: Sequence[DataFile], *, holdout: float, demanded: str | None = None) -> DataSource:
    """The resolved data of a plan, its digest over the sorted (path, sha256, size).

    Raises:
        ConfigError: `demanded` (data.digest of the line) is another digest.
    """
    ordered = tuple(sorted(files, key=lambda file: file.path))
    total = digest([(file.path, file.key.rpartition("/")[2], file.size_bytes) for file in ordered])
    if demanded is not None and demanded != total:
        raise refusal(f"data.digest: wanted {demanded}, found {total}; the files differ, or set this digest")
    return DataSource(files=ordered, digest=total, holdout=holdout)


def installed_package(name: str) -> Path | None:
    """Folder of a package on the path, found without importing it."""
    try:
        found = find_spec(name)
    except ValueError:  # a module without a spec, as __main__ has none
        return None
    places = list(found.submodule_search_locations or ()) if found else []
    return Path(places[0]) if places else None


def _matching(
    pattern: str,
    tracked: Mapping[str, Reader | None],
    package_root: Callable[[str], Path | None],
    stored: Callable[[str], bytes | None] | None,
) -> Iterator[tuple[str, Reader]]:
    scheme, colon, rest = pattern.partition(":")
    if not colon:
        return _from_store(pattern, stored)
    if not is_inside(rest):
        raise refusal(f"data.text: wanted a path that stays inside, found {pattern}; write it relative, without ..")
    if scheme == "repo":
        return _from_tree(rest, tracked)
    if scheme == "package":
        return _from_package(pattern, rest, package_root)
    raise refusal(f"data.text: wanted repo: or package:, found {pattern}; repo:src/**/*.py works")


def _from_tree(glob: str, tracked: Mapping[str, Reader | None]) -> Iterator[tuple[str, Reader]]:
    for path, read in tracked.items():
        if not matches(path, glob):
            continue
        if read is None or not is_inside(path):
            raise refusal(f"data.text: wanted regular files, found {path}, a link or submodule; exclude it by the glob")
        yield f"repo/{path}", read


def _from_package(pattern: str, rest: str, package_root: Callable[[str], Path | None]) -> Iterator[tuple[str, Reader]]:
    name, _, glob = rest.partition("/")
    root = package_root(name)
    if root is None:
        raise refusal(f"data.text: {pattern}: wanted an installed package, found no {name}; install it or name another")
    for file in _files_below(root):
        path = file.relative_to(root).as_posix()
        if matches(path, glob or "**"):
            yield f"package/{name}/{path}", file.read_bytes


def _files_below(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(each for each in folders if each != "__pycache__")
        yield from (Path(folder, name) for name in sorted(names))


def _from_store(key: str, stored: Callable[[str], bytes | None] | None) -> Iterator[tuple[str, Reader]]:
    data = stored(key) if stored else None
    if data is None:
        raise refusal(f"data.text: wanted an object of the store called {key}, found none; upload it first")
    yield f"store/{key}", lambda: data


def _require_small(pattern: str, total: int) -> None:
    if total > MOST_BYTES:
        most, found = format_bytes(MOST_BYTES), format_bytes(total)
        raise refusal(f"data.text: {pattern}: wanted at most {most} of text, found {found}; use data.shards")


def _nothing(pattern: str, tracked: Mapping[str, Reader | None]) -> str:
    where = f"none among {len(tracked)} of the commit" if pattern.startswith("repo:") else "none in the package"
    works = "commit the files, or widen the glob (** stands for any number of folders)"
    return f"data.text: wanted files for {pattern}, found {where}; {works}"
