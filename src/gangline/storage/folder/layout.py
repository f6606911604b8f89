"""Layout of a folder store: sections, prefixes with staging, locks, uploads, and the walk over its keys in order."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import StorageError
from gangline.storage.folder.durable_files import make_folders, prune
from gangline.storage.folder.safe_paths import pinned_folder
from gangline.storage.objects.keys import check_key

HIDDEN = ".store~"
_SLASH = "~"
"""No key has one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """The part of the store that a process needs for one section."""

    folder: Path
    """It writes here."""
    mark: Path
    """A folder that is there."""


class FolderLayout:
    """Paths inside the store at `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._sections = root / HIDDEN / "sections"
        self._was_there = False
        """The marker was seen."""

    def path(self, key: str) -> Path:
        """Path of an object, to be shown; `file` opens it."""
        return self.root / check_key(key)

    @contextmanager
    def file(self, key: str, *, make: bool = False) -> Iterator[Path]:
        """An object's file while the block runs; with `make` its folder is there.

        Raises:
            FileNotFoundError, NotADirectoryError: The folder is missing, or in a section a link is in its place.
        """
        path, section = self.path(key), self.section_of(key)
        if section is None:
            if make:
                make_folders(path.parent)
            yield path
            return
        root = self.root / section
        with pinned_folder(root, path.parent.relative_to(root).parts, make=make) as folder:
            yield folder / path.name

    def prune(self, key: str) -> None:
        """Remove the folders that held nothing but this object, up to its section or the store."""
        path, section = self.path(key), self.section_of(key)
        if section is None:
            prune(path.parent, self.root)
            return
        parts = path.parent.relative_to(self.root / section).parts
        with suppress(OSError):  # not empty, or gone: either ends the climb
            for last in reversed(range(len(parts))):
                with pinned_folder(self.root / section, parts[:last]) as folder:
                    (folder / parts[last]).rmdir()

    @contextmanager
    def hidden(self, section: str | None, name: str) -> Iterator[Path]:
        """Staging, locks or uploads, of a section or of the store itself; made where it is missing."""
        if section is None:
            yield self._made(name)
            return
        self._was_there = True
        with pinned_folder(self.root / section, (HIDDEN, name), make=True) as folder:
            yield folder

    def make_section(self, prefix: str) -> Section:
        """Create the section `prefix` before anything is written below it; a second call changes nothing."""
        self._made("locks")
        section = Section(folder=self.path(prefix), mark=self._sections / prefix.replace("/", _SLASH))
        make_folders(section.folder / HIDDEN)
        make_folders(section.mark)
        return section

    def section_of(self, key: str) -> str | None:
        """The section that an object of this key lies in; None: in none."""
        sections, name = str(self._sections), ""
        if not os.path.isdir(sections):  # noqa: PTH112  # asked at every call: no object is made for it
            return None
        for part in key.split("/")[:-1]:
            name = f"{name}{_SLASH}{part}" if name else part
            if os.path.isdir(f"{sections}/{name}"):  # noqa: PTH112  # as above
                return name.replace(_SLASH, "/")
        return None

    def sections_at(self, prefix: str) -> Iterator[str | None]:
        """Where keys that begin with `prefix` may be: the store itself, and those of its sections."""
        if (self.root / HIDDEN).is_dir():
            yield None
        names = sorted(path.name for path in self._sections.iterdir()) if self._sections.is_dir() else []
        for section in (name.replace(_SLASH, "/") for name in names):
            if (section.startswith(prefix) or prefix.startswith(f"{section}/")) and (self.root / section).is_dir():
                yield section

    def demand_marker(self) -> None:
        """Called before a key is reported missing; raises StorageError if the store folder itself disappeared."""
        was_there = self._was_there  # first: another thread may be making it now
        if (self.root / HIDDEN).is_dir():
            self._was_there = True
        elif was_there:
            raise StorageError(
                f"store {self.root}: the store folder is missing; mount it again and the run resumes"
                " (if it was deleted on purpose, restart this program)"
            )

    def _made(self, name: str) -> Path:
        folder = self.root / HIDDEN / name
        if not folder.is_dir():
            self.demand_marker()
            self._check_place()
            make_folders(folder)
        self._was_there = True
        return folder

    def _check_place(self) -> None:
        grandparent = self.root.parent.parent
        if not grandparent.is_dir():
            raise StorageError(
                f"store {self.root}: wanted the folder {grandparent}, found none; make it (or mount it), "
                "or choose another store.url"
            )


def walk(layout: FolderLayout, *, prefix: str, after: str) -> Iterator[tuple[str, os.stat_result]]:
    """Keys that begin with `prefix` and sort after `after`, in byte order.

    A folder may be a link, where an administrator put it, but for those of a section: a link in one is no object.
    """
    yield from _walk(layout, layout.root, "", prefix=prefix, after=after, in_section=False)


def _walk(
    layout: FolderLayout, folder: Path, above: str, *, prefix: str, after: str, in_section: bool
) -> Iterator[tuple[str, os.stat_result]]:
    for name, is_folder in _names(folder, follow=not in_section):
        key = above + name
        if is_folder:
            if _may_hold(key, prefix, after):
                inside = in_section or layout.section_of(key) is not None
                yield from _walk(layout, folder / name, key, prefix=prefix, after=after, in_section=inside)
        elif key.startswith(prefix) and key > after:
            try:
                status = (folder / name).lstat()
            except FileNotFoundError:  # deleted since the folder was read
                continue
            if stat.S_ISREG(status.st_mode):
                yield key, status


def _names(folder: Path, *, follow: bool) -> list[tuple[str, bool]]:
    """A folder sorts as its name and `/`, as its keys do."""
    gone = FileNotFoundError if follow else (FileNotFoundError, NotADirectoryError, PermissionError)
    try:
        with os.scandir(folder) as entries:
            return sorted(
                (entry.name + "/", True) if entry.is_dir(follow_symlinks=follow) else (entry.name, False)
                for entry in entries
                if entry.name != HIDDEN
            )
    except gone:
        return []


def _may_hold(folder_key: str, prefix: str, after: str) -> bool:
    on_prefix = folder_key.startswith(prefix) or prefix.startswith(folder_key)
    return on_prefix and (folder_key > after or after.startswith(folder_key))
