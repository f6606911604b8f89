"""Lock of a commit (requirements, pylock or uv.lock) as hashed requirements; runs no project code, uses no network."""

import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from gangline.build.virtualenv.uv import Uv
from gangline.errors import ConfigError
from gangline.git.repository import Repository
from gangline.spec.config.line import EnvTable
from gangline.spec.config.lock import PUBLIC_INDEX, Pin, kind_of, lock_indexes, read_lock, read_pylock, read_toml
from gangline.spec.globs import is_inside

_MOST_PROJECTS = 1000
_INDEX_NAME = re.compile(r"[a-z][a-z0-9-]{0,19}")


@dataclass(frozen=True, slots=True)
class CommitLock:
    """The lock of a commit, read."""

    file: str
    """Path in the commit."""
    requirements: bytes
    """Content of a requirements file with hashes."""
    pins: tuple[Pin, ...]
    requires_python: str | None
    """Specifier; None: any."""
    indexes: dict[tuple[str, str], str] = field(default_factory=dict)
    """Address of the index of a package, by name and version, where the lock says one."""


def read_commit_lock(repository: Repository, tree: str, table: EnvTable, uv: Uv | None = None) -> CommitLock | None:
    """The lock that the line names; None where it names none.

    Args:
        repository: Of the commit.
        tree: Of the commit.
        table: Of the line.
        uv: Reads a `uv.lock`; other locks need none.

    Raises:
        ConfigError: It is not in the commit, or has an entry that is not a package by version and hash.
    """
    if table.lock is None:
        return None
    data = repository.file(tree, table.lock)
    if data is None:
        raise ConfigError(f"line.toml: env.lock: wanted {table.lock} in the commit, found none; git add it")
    required = f"=={table.python}.*" if table.python else None
    if kind_of(table.lock) == "requirements":
        return CommitLock(table.lock, data, read_lock(data, file=table.lock), required)
    if kind_of(table.lock) == "pylock":
        lock = read_pylock(data, file=table.lock)
        indexes = lock_indexes(data, file=table.lock)
        return CommitLock(table.lock, lock.requirements, lock.pins, required or lock.requires_python, indexes)
    requires = read_toml(data, file=table.lock).get("requires-python")
    exported = _export(repository, tree, table, data, uv or Uv.find({}))
    pins = read_lock(exported, file=f"{table.lock}, exported")
    requires = required or (requires if isinstance(requires, str) else None)
    return CommitLock(table.lock, exported, pins, requires, lock_indexes(data, file=table.lock))


def missing_index(lock: CommitLock, failure: str, *, known: str) -> str:
    """Sentence on the package that uv did not find, and that comes from an index which the site lacks; empty: none is.

    Args:
        lock: The lock that was installed.
        failure: What uv said.
        known: Text with the addresses of the site's indexes.
    """
    for pin in lock.pins:
        index = lock.indexes.get((pin.name, pin.version), "")
        is_own = index not in ("", PUBLIC_INDEX) or "+" in pin.version
        if not is_own or (index and index.rstrip("/") in known) or f"{pin.name}=={pin.version}" not in failure:
            continue
        name = index.rstrip("/").rpartition("/")[2]
        name, url = (name if _INDEX_NAME.fullmatch(name) else "own", index) if index else ("NAME", "...")
        where = f" ({index} in {lock.file})" if index else ""
        return (
            f"{lock.file}: {pin.name} {pin.version} comes from an index of its own{where}, which this site does not"
            f' have: in site.toml [index.{name}] url = "{url}"'
        )
    return ""


def _export(repository: Repository, tree: str, table: EnvTable, data: bytes, uv: Uv) -> bytes:
    """Packages of a `uv.lock`, exported by uv; the project itself is left out, as it is code of the commit.

    uv gets the lock and the `pyproject.toml` files, and no network.
    """
    assert table.lock is not None
    folder_of_lock = table.lock.rpartition("/")[0]
    with tempfile.TemporaryDirectory(prefix="gangline-lock-") as name:
        folder = Path(name)
        (folder / "uv.lock").write_bytes(data)
        for path, description in _projects(repository, tree, folder_of_lock):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(description)
        if not (folder / "pyproject.toml").exists():
            raise ConfigError(f"env.lock: wanted a pyproject.toml next to {table.lock} in the commit, found none")
        extras = [word for extra in table.extras for word in ("--extra", extra)]
        return uv.run(
            "export", "--quiet", "--frozen", "--offline", "--no-config", "--no-default-groups", "--no-emit-workspace",
            "--no-header", "--no-annotate", "--format", "requirements-txt", *extras, folder=folder, what=table.lock,
        )  # fmt: skip


def _projects(repository: Repository, tree: str, folder: str) -> list[tuple[str, bytes]]:
    """(path, content) of each `pyproject.toml` in the lock's folder and below it; paths are relative to that folder."""
    start = f"{folder}/" if folder else ""
    entries = [
        entry for entry in repository.entries(tree)
        if entry.is_file and entry.path.startswith(start) and entry.path.rpartition("/")[2] == "pyproject.toml"
        and is_inside(entry.path) and len(entry.path) < 1000
    ][:_MOST_PROJECTS]  # fmt: skip
    contents = repository.blobs([entry.blob for entry in entries])
    return [(entry.path.removeprefix(start), data) for entry, data in zip(entries, contents, strict=True)]
