"""What `gangline data` prints: progress on stderr, versions in lists, and differences of two."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

from gangline.cli.terminal import is_plain, say, say_over
from gangline.data.versions import DatasetAlias, DatasetEntry, Trusted, resolve_dataset
from gangline.errors import ConfigError, IntegrityError
from gangline.sanitize import clean
from gangline.spec.dataset import Dataset
from gangline.storage.objects.protocol import ObjectStore
from gangline.units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from gangline.data.pack import PackProgress

_SECONDS_BETWEEN = 10.0
"""Time between two lines where stderr is no terminal."""
_WIDTH = 10


class DataProgress:
    """One line on stderr that is replaced, or a line every ten seconds; nothing with `--json`."""

    def __init__(self, action: str, is_quiet: bool) -> None:  # the caller's own flag
        self._action, self._is_quiet = action, is_quiet
        self._is_plain = is_plain(sys.stderr)
        self._began = time.monotonic()
        self._next = 0.0 if not self._is_plain else self._began + _SECONDS_BETWEEN
        self._first: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self._is_plain and not self._is_quiet:
            say_over()

    def packed(self, found: "PackProgress") -> None:
        """Tell how many bytes of the files are read."""
        share = found.done_bytes / max(found.total_bytes, 1)
        size = f"{format_bytes(found.done_bytes)} of {format_bytes(found.total_bytes)}"
        self._tell(share, f"{counted(found.shards, 'shard')} · {counted(found.samples, 'row')} · {size}")

    def added(self, done: int, total: int) -> None:
        """Tell how many files or shards are done."""
        self._tell(done / max(total, 1), f"{done} of {total} files")

    def scored(self, done: int, total: int) -> None:
        """Tell how many shards were scored."""
        self._tell(done / max(total, 1), f"{done} of {total} shards")

    def _tell(self, share: float, facts: str) -> None:
        seconds = time.monotonic()
        if self._first is None:
            self._first = share
        if self._is_quiet or seconds < self._next:
            return
        self._next = seconds + (_SECONDS_BETWEEN if self._is_plain else 0.2)
        bar = "█" * round(_WIDTH * share) + "░" * (_WIDTH - round(_WIDTH * share))
        spent, moved = seconds - self._began, share - self._first
        left = f" · {format_seconds(spent * (1 - share) / moved)} left" if moved > 0.01 else ""
        line = f"{self._action:8}{bar}  {facts}{left}"
        if self._is_plain:
            say(line, err=True)
        else:
            say_over(line)


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionRow:
    """A version in a list."""

    version: str
    """`NAME@VERSION`."""
    aliases: tuple[str, ...]
    written: str
    samples: int | None = None
    shards: int | None = None
    size_bytes: int | None = None
    problem: str = ""
    """Why it cannot be used."""

    @property
    def cells(self) -> tuple[str, ...]:
        """Texts of its columns."""
        numbers = ("-", "-", "-")
        if self.samples is not None and self.size_bytes is not None:
            numbers = (f"{self.samples:,}", str(self.shards), format_bytes(self.size_bytes))
        return (self.version, " ".join(self.aliases) or "-", *numbers, self.written, clean(self.problem, limit=150))


def version_rows(
    store: ObjectStore, entry: DatasetEntry, aliases: Sequence[DatasetAlias], trusted: Trusted
) -> VersionRow:
    """Row of a version, its document read and its signature checked."""
    named = tuple(alias.alias for alias in aliases if alias.version == entry.version)
    written = datetime.fromtimestamp(entry.modified, UTC).strftime("%Y-%m-%d %H:%M")
    try:
        dataset = resolve_dataset(store, entry.reference, trusted)
    except (IntegrityError, ConfigError) as error:
        return VersionRow(version=entry.reference, aliases=named, written=written, problem=str(error))
    return VersionRow(
        version=entry.reference, aliases=named, written=written, samples=dataset.num_samples,
        shards=len(dataset.shards), size_bytes=_size(dataset),
    )  # fmt: skip


def summary_line(found: Dataset) -> str:
    """`wiki@3f2a91c4  12,410,332 samples · 412 shards · 26.1 GB · from 3 files of commit 9f31c2a0`."""
    held = sum(shard.rows for shard in found.shards if shard.split == "holdout")
    parts = [counted(found.num_samples, "sample"), counted(len(found.shards), "shard"), format_bytes(_size(found))]
    parts += [f"{held:,} held out"] if held else []
    return f"{found.name}@{found.version}  {' · '.join([*parts, *_origin(found)])}"


def difference_rows(one: Dataset, other: Dataset) -> list[tuple[str, str, str]]:
    """(what, of the first, of the second), where they differ."""
    shards = {shard.sha256 for shard in one.shards}, {shard.sha256 for shard in other.shards}
    rows = [
        ("samples", f"{one.num_samples:,}", f"{other.num_samples:,}"),
        ("shards", str(len(one.shards)), str(len(other.shards))),
        ("shards of its own", str(len(shards[0] - shards[1])), str(len(shards[1] - shards[0]))),
        ("size", format_bytes(_size(one)), format_bytes(_size(other))),
        ("columns", _columns(one), _columns(other)),
        ("origin", " ".join(_origin(one)), " ".join(_origin(other))),
    ]
    rows += [
        (key, str(one.options.get(key, "-")), str(other.options.get(key, "-")))
        for key in sorted(one.options.keys() | other.options.keys())
    ]
    head = ("", f"{one.name}@{one.version}", f"{other.name}@{other.version}")
    found = [row for row in rows if row[1] != row[2]]
    return [head, *found] if found else []


def _size(found: Dataset) -> int:
    return sum(shard.size_bytes for shard in found.shards)


def _columns(found: Dataset) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in found.schema)


def _origin(found: Dataset) -> list[str]:
    origin = found.origin
    if origin.run is not None:
        return [f"from run {origin.run}"]
    if origin.model is not None:
        return [clean(f"from {origin.model} and {origin.dataset}", limit=120)]
    if origin.source is not None:
        return [clean(f"from {origin.source}:{origin.path}", limit=120)]
    commit = f" of commit {origin.commit[:8]}" if origin.commit else ""
    return [f"from {counted(len(origin.files), 'file')}{commit}"] if origin.files else []
