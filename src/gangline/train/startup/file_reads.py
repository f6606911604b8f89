"""Files that a process reads and folders that it lists, as far as nothing declares them. Standard library only.

Some calls of torch and torchvision open files in native code, where no audit hook of Python sees them. A search for
files that the code layer leaves out finds nothing, and raises nothing: its pattern is reported.

Each is reported once, as it was just before the program opened it:

    {"event": "read", "path", "size_bytes", "mtime_ns", "ctime_ns", "sha256"}     a file; `sha256` of a small one
    {"event": "listed", "path", "size_bytes", "mtime_ns", "ctime_ns", "sha256"}   a folder, its path ends with a slash
"""

import functools
import os
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from os.path import abspath, isdir, join
from typing import Any

from .contents import MOST_BYTES, contents_of
from .origins import FileOrigins
from .programs import calling_file

MOST_READS = 100
"""Files that one process reports; more are only counted."""
MOST_LISTED = 50
"""Folders that one process reports; more are only counted."""
MOST_LEFT = 20
"""Files of earlier runs in a kept home that one process reports beyond the other limits."""
MOST_SEEN = 20_000
"""Paths outside of what is declared that one process examines."""
_IMPORTS = "<frozen importlib._bootstrap_external>"
MOST_DIGESTED_BYTES = 64 << 20
"""Bytes that one process reads a second time for digests."""


class FileReads:
    """Reads of this process."""

    def __init__(
        self,
        places: FileOrigins,
        *,
        report: str,
        since: float,
        write: Callable[[Mapping[str, Any]], None],
        unseen: Callable[[str], None],
    ) -> None:
        """
        Args:
            places: Folders by origin.
            report: File to which this process reports.
            since: Start of the gang: newer files in a folder for temporary files were written by its processes.
            write: Writes an event to the report.
            unseen: Called with the reason why reads are not examined.
        """
        self._places, self._since, self._write, self._unseen = places, since, write, unseen
        self._seen: set[str] = {report}
        self._room = MOST_DIGESTED_BYTES
        self._num_left = 0
        self.num_files = 0
        """Files that were read and that nothing declares."""
        self.num_folders = 0
        """Folders that were listed and that nothing declares."""

    def opened(self, path: Any, flags: int) -> None:
        """A file is about to be opened."""
        name = _name_of(path)
        if name is None or (name.startswith(self._places.declared) and ".." not in name):
            return  # first, because training opens declared files in every step
        full = os.path.abspath(name)
        if full in self._seen or full.startswith(self._places.declared):
            return
        has_room = self._remember(full)
        if flags & os.O_ACCMODE == os.O_WRONLY or flags & os.O_TRUNC or (flags & os.O_CREAT and not _holds_bytes(full)):
            return  # written by this program, so not an input
        if has_room:
            self._examine(full)
        else:
            self._unseen(f"more than {MOST_SEEN} files were opened outside of what is declared")

    def opened_natively(self, path: Any) -> None:
        """A file is about to be opened, or created where there is none."""
        self.opened(path, os.O_RDONLY if os.path.exists(path) else os.O_CREAT)

    def connected(self, database: Any) -> None:
        """A file of SQLite is about to be opened or created."""
        path = os.fsdecode(database) if isinstance(database, bytes | os.PathLike) else database
        if not isinstance(path, str) or path in ("", ":memory:"):
            return
        path = path.removeprefix("file:").partition("?")[0] if path.startswith("file:") else path
        self.opened_natively(path)

    def listed(self, path: Any) -> None:
        """The names in a folder are about to be listed; a search for modules looks for names that it knows."""
        name = _name_of("." if path is None else path)
        if name is None:
            return
        full = os.path.abspath(name).rstrip("/") + "/"
        if full in self._seen or full.startswith(self._places.declared) or full in self._places.temporary:
            return
        if calling_file() == _IMPORTS or full.rstrip("/") in sys.path:
            return
        if not self._remember(full) or self.num_folders >= MOST_LISTED:
            self.num_folders += 1  # counted, but not examined
            self._unseen(f"folders beyond the first {MOST_LISTED} of a process")
            return
        found = contents_of(full)
        if found is None:
            self._seen.discard(full)  # the folder may exist later
        elif not self._is_of_this_gang(full, os.stat(full)):
            self.num_folders += 1
            self._write({"event": "listed", "path": full[:1000], **found._asdict()})

    def is_new(self, file: os.stat_result) -> bool:
        """Written since the gang started: a time can be set, a link makes the other one new."""
        return min(file.st_mtime, file.st_ctime) >= self._since

    def _remember(self, full: str) -> bool:
        """Whether there is room to examine the path."""
        has_room = len(self._seen) < MOST_SEEN or self._may_be_left(full)
        if has_room:
            self._seen.add(full)  # first: what examines it opens it, too
        return has_room

    def _examine(self, full: str) -> None:
        may_be_left = self._may_be_left(full)
        if self.num_files >= MOST_READS and not may_be_left:
            self._count_beyond()
            return
        try:
            status = os.stat(full)
        except (OSError, ValueError):
            self._seen.discard(full)  # the file may exist later
            return
        is_left = may_be_left and not self.is_new(status)
        is_known = self._is_of_this_gang(full, status) or (full.endswith((".pyc", ".pth")) and not is_left)
        if is_known or not stat.S_ISREG(status.st_mode):
            return
        if self.num_files >= MOST_READS and not is_left:
            self._count_beyond()
            return
        self.num_files += 1
        self._num_left += is_left
        contents = contents_of(full, most_bytes=min(MOST_BYTES, self._room))
        if contents is not None:
            self._room -= contents.size_bytes if contents.sha256 else 0
            self._write({"event": "read", "path": full[:1000], **contents._asdict()})

    def _count_beyond(self) -> None:
        """Count a file without a place in the report."""
        self.num_files += 1
        self._unseen(f"files beyond the first {MOST_READS} of a process")

    def _may_be_left(self, full: str) -> bool:
        """An earlier run may have left it in a home that is kept: such files are looked for beyond the other limits."""
        return full.startswith(self._places.kept_home) and self._num_left < MOST_LEFT

    def _is_of_this_gang(self, full: str, found: os.stat_result) -> bool:
        """A new file in a folder for temporary files, or a link to what is declared."""
        fresh = full.startswith(self._places.temporary) and self.is_new(found)
        return fresh or os.path.realpath(full).startswith(self._places.declared)


def _name_of(path: Any) -> "str | None":
    """None: a descriptor, or nothing that can be opened."""
    try:
        return os.fsdecode(path)
    except TypeError:
        return None


def _holds_bytes(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except (OSError, ValueError):
        return False


_CALLS: tuple[tuple[tuple[str, str, str], ...], ...] = (
    (("torch.jit", "load", "f"), ("torch", "from_file", "filename")),
    (("torchvision.io.image", "read_file", "path"), ("torchvision.io", "read_file", "path")),
)
"""Calls of each library: module, function, and parameter that is the path; `torchvision.io.read_image` calls
`read_file`."""


class TorchReads:
    """Calls `opened` with the path before each such call, from the time that the library is imported."""

    def __init__(self, opened: Callable[[Any], None]) -> None:
        self._opened = opened
        self._waiting = _CALLS

    def imports(self) -> None:
        """A module is about to be imported.

        These modules have their functions before the import of their library ends, which imports more after them:
        a caller that comes here at each import is in time.
        """
        self._waiting = tuple(each for each in self._waiting if not self._watch(each))

    def _watch(self, calls: tuple[tuple[str, str, str], ...]) -> bool:
        found = [(sys.modules.get(module), name, parameter) for module, name, parameter in calls]
        if not all(module is not None and name in vars(module) for module, name, _ in found):
            return False
        for module, name, parameter in found:
            setattr(module, name, _seen(vars(module)[name], parameter, self._opened))
        return True


def _seen(call: Callable[..., Any], parameter: str, opened: Callable[[Any], None]) -> Callable[..., Any]:
    @functools.wraps(call)
    def seen(*arguments: Any, **named: Any) -> Any:
        with suppress(Exception):
            path = arguments[0] if arguments else named.get(parameter)
            if isinstance(path, str | bytes | os.PathLike):
                opened(path)
        return call(*arguments, **named)

    return seen


SEARCHES = frozenset({"glob.glob/2", "pathlib.Path.glob", "pathlib.Path.rglob", "os.listdir", "os.scandir"})
_MOST = 20


class Searches:
    """Reports the searches of one process in the layer, whose folders end with a slash, once each."""

    def __init__(self, code: Iterable[str], write: Callable[[Mapping[str, Any]], None]) -> None:
        self._code, self._write = tuple(code), write
        self._seen: set[str] = set()

    def looked(self, event: str, arguments: tuple[Any, ...]) -> None:
        """A folder is about to be listed, or files that match a pattern are."""
        path = abspath(_pattern(event, arguments))
        folder = next((each for each in self._code if path.startswith(each)), None)
        if folder is None or path in self._seen or len(self._seen) >= _MOST:
            return
        is_listing = event.startswith("os.")
        if is_listing and (isdir(path) or any(each.startswith(f"{path}/") for each in self._seen)):
            return  # it has what is there, or a pattern lists it
        self._seen.add(path)
        self._write({"event": "search", "pattern": path[len(folder) :][:1000]})


def _pattern(event: str, arguments: tuple[Any, ...]) -> str:
    match event, arguments:
        case "glob.glob/2", (pattern, _, root, _):
            return join(os.fsdecode(root or ""), os.fsdecode(pattern))
        case "pathlib.Path.glob", (folder, pattern):
            return join(str(folder), pattern)
        case "pathlib.Path.rglob", (folder, pattern):
            return join(str(folder), "**", pattern)
        case _, (folder,) if isinstance(folder, (str, bytes, os.PathLike)):
            return os.fsdecode(folder)
    return "/"
