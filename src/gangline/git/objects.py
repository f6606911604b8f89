"""Trees and blobs from git's output: counted and measured before they are held; and pointers to files elsewhere."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gangline.errors import ConfigError, UsageError
from gangline.git.bounded_process import OutputTooLarge
from gangline.units import format_bytes

MOST_ENTRIES = 200_000
"""Entries that a tree may have from which anything is made."""
MOST_LISTED_BYTES = 64_000_000
"""Bytes that all its paths may have together."""
LONGEST_PART = 4_000
"""Bytes of one path with its mode and object name; no file system has longer ones."""
MOST_CONTENT_BYTES = 64_000_000
"""Size limit of one object that is read whole."""

_POINTER = re.compile(
    rb"version https://(?:git-lfs|hawser)\.github\.com/spec/v1\r?\n"
    rb"(?:ext-[^\n]+\n)*oid sha256:(?P<oid>[0-9a-f]{64})\r?\n(?:ext-[^\n]+\n)*size (?P<size>[0-9]{1,20})\r?\n?\s*"
)
LONGEST_POINTER = 1024
"""Git LFS reads no longer ones."""
_ANNEXED, _ENCRYPTED = b"/annex/objects/", b"\0GITCRYPT\0"
"""First bytes of what git-annex and git-crypt commit for a file."""


_FULL_NAME = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?:")
_LARGEST_KEPT, _MOST_KEPT = 100_000, 100


class KnownObjects(dict[str, bytes]):
    """What git answered about `OBJECT:path`: small files, and names of trees. By full names that never changes."""

    def keep(self, name: str, data: bytes) -> bytes:
        """`data`, kept if `name` is of a full object name, and there is room."""
        if _FULL_NAME.match(name) and len(data) <= _LARGEST_KEPT and len(self) < _MOST_KEPT:
            self[name] = data
        return data

    def keep_pieces(self, name: str, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """`pieces` as they come, kept together likewise after the last one."""
        kept: list[bytes] = []
        for piece in pieces:
            if sum(map(len, kept)) <= _LARGEST_KEPT:
                kept.append(piece)
            yield piece
        self.keep(name, b"".join(kept))


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One path of a tree."""

    path: str
    """Relative to the line's folder."""
    blob: str
    """Object name."""
    mode: str
    """`100644`, `100755`; `120000` a link, `160000` a submodule."""
    size_bytes: int

    @property
    def is_file(self) -> bool:
        """A regular file: no link and no submodule."""
        return self.mode in {"100644", "100755"}

    @property
    def is_submodule(self) -> bool:
        """A commit of another repository."""
        return self.mode == "160000"


def read_entries(pieces: Iterable[bytes]) -> list[TreeEntry]:
    """Entries that `ls-tree -r -z --long` lists, by path.

    Raises:
        OutputTooLarge: More than MOST_ENTRIES.
        ConfigError: A name is not UTF-8.
    """
    entries: list[TreeEntry] = []
    for line in parts(pieces):
        if len(entries) == MOST_ENTRIES:
            raise OutputTooLarge(
                f"the commit has more than {MOST_ENTRIES:,} files; a line is made of fewer: move some away"
            )
        entries.append(_tree_entry(line))
    return sorted(entries, key=lambda entry: entry.path)


def read_contents(pieces: Iterable[bytes], names: Sequence[str]) -> Iterator[bytes]:
    """Contents of the objects `names`, in their order, from the output of `cat-file --batch`.

    Raises:
        OutputTooLarge: One has more than `MOST_CONTENT_BYTES`; it was not read.
        UsageError: There is no such object.
    """
    source = _Source(pieces)
    for name in names:
        fields = source.line().split()
        if len(fields) != 3:
            raise UsageError(f"git has no object {name}; a shallow or partial clone? git fetch --unshallow")
        size = int(fields[2])
        if size > MOST_CONTENT_BYTES:
            most = format_bytes(MOST_CONTENT_BYTES)
            raise OutputTooLarge(f"object {name} has {format_bytes(size)}, wanted at most {most}")
        yield source.take(size + 1)[:-1]


def parts(pieces: Iterable[bytes], end: bytes = b"\0") -> Iterator[bytes]:
    """Parts of a stream that `end` separates; empty ones are left out.

    Raises:
        OutputTooLarge: One is longer than LONGEST_PART, or all together than MOST_LISTED_BYTES.
    """
    rest, size = b"", 0
    for piece in pieces:
        size += len(piece)
        found = (rest + piece).split(end)
        *whole, rest = found
        if max(map(len, found)) > LONGEST_PART or size > MOST_LISTED_BYTES:
            longest, most = format_bytes(LONGEST_PART), format_bytes(MOST_LISTED_BYTES)
            raise OutputTooLarge(
                f"wanted paths of at most {longest}, all of them {most}, found more; rename or move files"
            )
        yield from filter(None, whole)
    if rest:
        yield rest


def substitute(data: bytes | memoryview) -> str | None:
    """What was committed instead of a file's content, as `a Git LFS pointer to 3.1 GB`; None: the content itself."""
    if (found := lfs_pointer(data)) is not None:
        return f"a Git LFS pointer to {format_bytes(found[1])}"
    start = bytes(data[: len(_ANNEXED)])
    if start == _ANNEXED:
        return "a pointer of git-annex"
    return "a file that git-crypt encrypted" if start.startswith(_ENCRYPTED) else None


def lfs_pointer(data: bytes | memoryview) -> tuple[str, int] | None:
    """SHA-256 and size of the file that a pointer of Git LFS stands for; None: `data` is no pointer."""
    match = _POINTER.fullmatch(data) if len(data) < LONGEST_POINTER else None
    return None if match is None else (match["oid"].decode(), int(match["size"]))


class _Source:
    """Reads a stream by line and by count."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._held = bytearray()

    def line(self) -> bytes:
        while (end := self._held.find(b"\n")) < 0:
            if not self._more():
                return b""
        return self._take(end + 1)[:-1]

    def take(self, size: int) -> bytes:
        while len(self._held) < size and self._more():
            pass
        return self._take(size)

    def _take(self, size: int) -> bytes:
        found = bytes(self._held[:size])
        del self._held[:size]
        return found

    def _more(self) -> bool:
        piece = next(self._pieces, None)
        self._held += piece or b""
        return piece is not None


def _tree_entry(line: bytes) -> TreeEntry:
    meta, _, path = line.partition(b"\t")
    mode, _, blob, size = meta.split()
    name = path.decode(errors="surrogateescape")
    if "\udc80" <= max(name, default="") <= "\udcff":
        raise ConfigError(f"wanted file names in UTF-8, found {path[:200]!r}; git mv it")
    return TreeEntry(name, blob.decode(), mode.decode(), 0 if size == b"-" else int(size))
