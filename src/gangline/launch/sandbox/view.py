"""What is visible inside a sandbox, as data, and the mounts for it.

Of two entries the deeper one counts: a folder that is shown inside a hidden one is there, and what is hidden inside a
shown one is not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["hide", "read", "write"]
TMP = Path("/tmp")  # noqa: S108  # inside it is a folder of the sandbox
_ORDER: dict[Kind, int] = {"hide": 0, "read": 1, "write": 2}


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxView:
    """Visible and hidden paths, all absolute; paths that do not exist are ignored."""

    wide: bool
    """The whole file system is visible read-only except `hidden`; False: only the listed paths are visible."""
    network: bool
    """The network of the machine; False: an own loopback only."""
    tmp: Path
    """Folder mounted at `/tmp`."""
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    """Folders that appear empty except for listed paths inside them."""
    empty: tuple[Path, ...] = ()
    """Empty folders to create inside."""

    def entries(self) -> list[tuple[Path, Kind]]:
        """Paths to mount, parents first; without those that a parent already covers."""
        asked: list[tuple[Path, Kind]] = [(Path("/"), "read" if self.wide else "hide")]
        asked += [(real, "hide") for each in self.hidden if is_there(real := each.resolve())]
        asked += [(folder, "write") for folder in temporary_folders()]
        asked += [(path, "read") for each in self.read for path in _names(each)]
        asked += [(each, "write") for each in self.write]
        found: dict[Path, Kind] = {}
        for path, kind in sorted(asked, key=lambda each: (len(each[0].parts), _ORDER[each[1]])):
            if kind == "write" or kind != _kind_at(found, path):
                found[path] = kind
        return list(found.items())[1:]


def _kind_at(entries: dict[Path, Kind], path: Path) -> Kind | None:
    """Kind of the deepest entry that contains `path`; None: none does."""
    return next((entries[each] for each in (path, *path.parents) if each in entries), None)


def temporary_folders() -> list[Path]:
    """Resolved temporary folders of the machine, whose content a sandbox does not see."""
    usual = (TMP, Path("/var/tmp"))  # noqa: S108  # as above
    return [each for each in dict.fromkeys(path.resolve() for path in usual) if is_there(each)]


def is_there(path: Path) -> bool:
    """Whether `path` exists; False if this user may not look."""
    try:
        return path.exists()
    except OSError:
        return False


def holds_any(folder: Path, paths: Sequence[Path]) -> bool:
    """Whether one of `paths` is `folder` or inside it."""
    return any(path.is_relative_to(folder) for path in paths)


def _names(path: Path) -> Iterator[Path]:
    """An existing path, and the target of its links."""
    if is_there(path):
        yield from dict.fromkeys((path, path.resolve()))
