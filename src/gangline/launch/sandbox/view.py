"""What is visible inside a sandbox, as data, and the mounts that make it so. Pure but for looking up what is there.

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
    """All paths are absolute; what is not there is left out."""

    wide: bool
    """The whole file system is visible read-only, but for what is hidden; else nothing is but what is shown."""
    network: bool
    """That of the machine; else a loopback of its own."""
    tmp: Path
    """What `/tmp` is."""
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    """Empty inside, but for what is shown in them."""
    empty: tuple[Path, ...] = ()
    """Empty folders that are there inside."""

    def entries(self) -> list[tuple[Path, Kind]]:
        """Every path that has to be mounted, shallow first; what its surroundings make so already is left out."""
        asked: list[tuple[Path, Kind]] = [(Path("/"), "read" if self.wide else "hide")]
        asked += [(real, "hide") for each in self.hidden if is_there(real := each.resolve())]
        asked += [(each, "write") for each in temporary_folders()]
        asked += [(path, "read") for each in self.read for path in _names(each)]
        asked += [(each, "write") for each in self.write]
        found: dict[Path, Kind] = {}
        for path, kind in sorted(asked, key=lambda each: (len(each[0].parts), _ORDER[each[1]])):
            if kind == "write" or kind != _kind_at(found, path):
                found[path] = kind
        return list(found.items())[1:]


def _kind_at(entries: dict[Path, Kind], path: Path) -> Kind | None:
    """What the deepest of `entries` that holds `path` makes of it."""
    return next((entries[each] for each in (path, *path.parents) if each in entries), None)


def temporary_folders() -> list[Path]:
    """Those of the machine, where links lead: what others keep there is no business of a sandbox."""
    usual = (TMP, Path("/var/tmp"))  # noqa: S108  # as above
    return [each for each in dict.fromkeys(path.resolve() for path in usual) if is_there(each)]


def is_there(path: Path) -> bool:
    """False also for what this user cannot look at."""
    try:
        return path.exists()
    except OSError:
        return False


def holds_any(folder: Path, paths: Sequence[Path]) -> bool:
    """One of `paths` is `folder`, or lies in it."""
    return any(each.is_relative_to(folder) for each in paths)


def _names(path: Path) -> Iterator[Path]:
    """A path, and where it leads by way of links: both have to be there."""
    if is_there(path):
        yield from dict.fromkeys((path, path.resolve()))
