"""Collector of the output files of a program, after its ranks have ended: uploads each file by digest, then their list.

It runs as a separate process. No file is held in memory as a whole: it is read once for its digest and once for the
upload, and again if it changed meanwhile. The list is written last, so an interrupted collector has collected nothing.
"""

import hashlib
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from io import BufferedReader
from pathlib import Path
from typing import TypeVar

from gangline.errors import GanglineError, IntegrityError, StorageError
from gangline.keeper.ipc.environment import KeeperEnvironment
from gangline.keeper.ipc.signals import die_with_parent
from gangline.keeper.transfer.uploader import output_prefix
from gangline.spec.config.grammar import is_git_name
from gangline.spec.globs import any_matches
from gangline.spec.plan import Plan
from gangline.spec.program_files import (
    FOLDER,
    IGNORED_FOLDER,
    MOST_METRICS_BYTES,
    MOST_OMITTED_LISTED,
    MOST_WRITERS,
    OUTPUTS,
    OmittedFile,
    OutputFile,
    Outputs,
    OutputsRequest,
)
from gangline.storage.folder.durable_files import replace_file
from gangline.storage.folder.safe_paths import open_plain, pinned_folder
from gangline.storage.objects import code_layer
from gangline.storage.objects.blobs import get_blob
from gangline.storage.objects.growing_file import put_blocks
from gangline.storage.objects.paths import check_path
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.open import open_store
from gangline.units import format_bytes

TRIES = 3
"""Attempts to read a file that changes."""
RETRY_SECONDS = 60.0
"""Time to retry when the store fails, for each file."""
_BLOCK_BYTES = 8 << 20
_LONGEST_LINE = 1 << 16
_CLOCK_SECONDS = 0.02
"""Lag that the time of a file may have."""
T = TypeVar("T")


class FileChanged(GanglineError):
    """A file changed while it was read."""


@dataclass(kw_only=True)
class Collector:
    """Uploads the outputs of one gang from `folder` to `prefix`."""

    store: ObjectStore
    request: OutputsRequest
    folder: Path
    """Working directory of the ranks."""
    prefix: str
    gang: str
    began: float
    """Seconds since the epoch; files of the code layer are older."""
    start: str = ""
    """Path of that folder in the code layer, with a slash; empty: its root."""
    metrics_writers: tuple[int, ...] = ()
    """Ranks that wrote the metrics file, as they marked."""
    ranks_began: float = 0.0
    """Seconds since the epoch when the ranks that ran last were started: an older metrics file is of killed ones."""
    tracked: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Size and SHA-256 of files that DVC or Git LFS track, by their paths in the code layer."""
    left_out: list[OmittedFile] = field(default_factory=list)

    def collect(self) -> Outputs:
        """Upload all requested files, or none of them. Raises `StorageError` if the store keeps failing."""
        found = {path: size for path, size in self._requested_files() if not self._is_of_commit(path, size)}
        wanted = [path for path in found if any_matches(path, self.request.globs)]
        refused = self._limit_exceeded({path: found[path] for path in wanted})
        files = [] if refused else [file for path in wanted if (file := self._file(path)) is not None]
        metrics = self._metrics(found)
        return Outputs(
            gang=self.gang, files=tuple(files), left_out=tuple(self.left_out[:MOST_OMITTED_LISTED]),
            num_left_out=len(self.left_out), refused=refused, metrics=metrics,
            metrics_writers=self.metrics_writers,
        )  # fmt: skip

    def _requested_files(self) -> Iterator[tuple[str, int]]:
        """Requested regular files with their sizes, in the order of their paths; links are not followed."""
        found: list[tuple[str, int]] = []
        for root, folders, names, handle in os.fwalk(self.folder, follow_symlinks=False, onerror=self._on_unlistable):
            inside = Path(root).relative_to(self.folder)
            folders[:] = [
                folder for folder in folders if folder != IGNORED_FOLDER and not self._is_git(inside / folder)
            ]
            for name in (*folders, *(each for each in names if not self._is_git(inside / each))):
                path = (inside / name).as_posix()
                if path != self.request.metrics and not any_matches(path, self.request.globs):
                    continue
                mark = os.stat(name, dir_fd=handle, follow_symlinks=False)
                if stat.S_ISREG(mark.st_mode) and self._has_plain_name(path):
                    found.append((path, mark.st_size))
                elif not stat.S_ISREG(mark.st_mode) and not stat.S_ISDIR(mark.st_mode):
                    kind = "a link" if stat.S_ISLNK(mark.st_mode) else "not a regular file"
                    self._leave(path, f"{kind}, which has no content to collect", is_lost=False)
        yield from sorted(found)

    def _on_unlistable(self, error: OSError) -> None:
        """Report a folder that cannot be listed if it may hold requested files."""
        path = Path(error.filename).relative_to(self.folder).as_posix()
        if any_matches(f"{path}/any", self.request.globs):
            self._leave(path, f"cannot be listed: {error.strerror}")

    def _is_git(self, path: Path) -> bool:
        """Whether this is a git folder or file, which is left out whole: fetched, its files would be obeyed by git."""
        if not is_git_name(path.name):
            return False
        if any_matches(path.as_posix(), self.request.globs) or any_matches(f"{path}/any", self.request.globs):
            self._leave(path.as_posix(), "git's own files are never collected", is_lost=False)
        return True

    def _has_plain_name(self, path: str) -> bool:
        try:
            check_path(path)
        except (IntegrityError, UnicodeEncodeError):
            self._leave(path, "its name is not a plain path in UTF-8")
            return False
        return True

    def _is_of_commit(self, path: str, size: int) -> bool:
        """The file is part of the code layer, or was placed there, and was not changed since."""
        data = self._layer.get(path)
        digest = hashlib.sha256(data).hexdigest() if data is not None and len(data) == size else None
        placed = self.tracked.get(f"{self.start}{path}")
        wanted = placed[1] if placed is not None and placed[0] == size else digest
        if wanted is None:
            return False
        try:
            with self._opened(path) as file:
                is_older = os.fstat(file.fileno()).st_mtime < self.began
                return is_older and hashlib.file_digest(file, "sha256").hexdigest() == wanted
        except OSError:
            return False

    @cached_property
    def _layer(self) -> dict[str, bytes | memoryview]:
        data = _with_retries(lambda: get_blob(self.store, self.request.code))
        return {file.path.removeprefix(self.start): file.data for file in code_layer.read_layer(data)}

    def _limit_exceeded(self, sizes: dict[str, int]) -> str:
        """Reason why the files exceed the limits of the site; empty: they do not."""
        request, total = self.request, sum(sizes.values())
        if len(sizes) <= request.most_files and total <= request.most_bytes:
            return ""
        largest = max(sizes, key=lambda path: sizes[path])
        return (
            f"wanted at most {request.most_files:,} files of {format_bytes(request.most_bytes)}"
            f" (limits.output_files, limits.output_bytes), found {len(sizes):,} of {format_bytes(total)}, the largest"
            f" {largest} with {format_bytes(sizes[largest])}; none of them was kept"
        )

    def _metrics(self, found: dict[str, int]) -> OutputFile | None:
        name = self.request.metrics
        if name is None or name not in found:
            return None
        if found[name] > MOST_METRICS_BYTES:
            most, size = format_bytes(MOST_METRICS_BYTES), format_bytes(found[name])
            self._leave(name, f"wanted at most {most} of metrics, found {size}")
            return None
        with suppress(OSError), self._opened(name) as file:
            times = os.fstat(file.fileno())
            if max(times.st_mtime, times.st_ctime) + _CLOCK_SECONDS < self.ranks_began:
                self._leave(name, "the program wrote it before its last restart, and not again")
                return None
        return self._file(name)

    def _file(self, path: str) -> OutputFile | None:
        """Upload a file; None: it is left out, with a reason in the list."""
        for _ in range(TRIES):
            try:
                return _with_retries(lambda: self._send(path))
            except FileChanged:
                continue
            except OSError as error:
                self._leave(path, f"cannot be read: {error.strerror}")
                return None
        self._leave(path, f"it changed while it was read, {TRIES} times")
        return None

    def _send(self, path: str) -> OutputFile:
        with self._opened(path) as file:
            before = _mark(file)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            key = f"{self.prefix}/{FOLDER}/{digest}"
            existing = self.store.head(key)
            if existing is None or existing.size_bytes != before[0]:
                put_blocks(self.store, key, _read_again(file, before[0], digest))
            if _mark(file) != before:
                raise FileChanged(path)
        return OutputFile(path=path, size_bytes=before[0], sha256=digest)

    def _opened(self, path: str) -> BufferedReader:
        *parents, name = path.split("/")
        with pinned_folder(self.folder, parents) as folder:
            return os.fdopen(open_plain(folder / name), "rb")

    def _leave(self, path: str, reason: str, *, is_lost: bool = True) -> None:
        shown = path.encode(errors="replace").decode()[:200]
        self.left_out.append(OmittedFile(path=shown, reason=reason, is_lost=is_lost))


def _mark(file: BufferedReader) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def _read_again(file: BufferedReader, size: int, wanted: str) -> Iterator[bytes]:
    """Bytes of the file; raises `FileChanged` at the end if their digest is not `wanted`."""
    file.seek(0)
    digest, left = hashlib.sha256(), size
    while left > 0 and (block := file.read(min(left, _BLOCK_BYTES))):
        digest.update(block)
        left -= len(block)
        yield block
    if digest.hexdigest() != wanted:
        raise FileChanged("its content")


def _with_retries(step: Callable[[], T]) -> T:
    deadline = time.monotonic() + RETRY_SECONDS
    while True:
        try:
            return step()
        except StorageError as error:
            if time.monotonic() > deadline:
                raise
            print(f"cannot collect, retrying: {error}", file=sys.stderr, flush=True)  # noqa: T201  # its log
            time.sleep(1.0)


def main(arguments: Sequence[str]) -> int:
    """Run the collector; returns 0 when the list is in the store, otherwise an exit code, with the error on stderr."""
    keeper, began = arguments
    die_with_parent(int(keeper))
    try:
        environment = KeeperEnvironment.read()
        _collect(environment, float(began))
    except GanglineError as error:
        print(error, file=sys.stderr)  # noqa: T201  # the keeper reads it
        return error.exit_code
    return 0


def _collect(environment: KeeperEnvironment, began: float) -> None:
    assert environment.outputs is not None, "the keeper starts it only for a request"
    plan = Plan.from_json(environment.plan.read_bytes())
    prefix = output_prefix(plan)
    store = open_store(
        environment.store, credentials=environment.store_credentials_file, socket_folder=environment.store_socket
    )
    collector = Collector(
        store=store, request=environment.outputs, folder=environment.code / plan.program.folder, prefix=prefix,
        gang=environment.gang, began=began, start=f"{plan.program.folder}/" if plan.program.folder else "",
        metrics_writers=_metrics_writers(environment.metrics_writers),
        ranks_began=ranks_began(environment.home / f"keeper-{environment.node_rank}.jsonl"),
        tracked={file.path: (file.size_bytes, file.key.rpartition("/")[2]) for file in plan.data.tracked},
    )  # fmt: skip
    outputs = collector.collect().to_json()
    _with_retries(lambda: store.put(f"{prefix}/{OUTPUTS}", outputs))
    replace_file(environment.home / OUTPUTS, outputs, durable=False)


def ranks_began(journal: Path) -> float:
    """When the generation of each rank's last process began, the earliest of all; 0: the keeper's journal has none."""
    began: dict[object, float] = {}
    generation = 0.0
    for line in _lines(journal):
        with suppress(ValueError, TypeError, KeyError):
            event = json.loads(line)
            if event["event"] == "generation_started":
                generation = datetime.fromisoformat(event["time"]).timestamp()
            elif event["event"] == "rank_started":
                began[event["rank"]] = generation
    return min(began.values(), default=0.0)


def _lines(journal: Path) -> Iterator[bytes]:
    """Long ones in pieces: ranks can write to the folder that it is in."""
    with suppress(FileNotFoundError), journal.open("rb") as file:
        while line := file.readline(_LONGEST_LINE):
            yield line


def _metrics_writers(marks: Path) -> tuple[int, ...]:
    found = (path.name for path in marks.glob("*"))
    return tuple(sorted(int(name) for name in found if name.isascii() and name.isdigit())[:MOST_WRITERS])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
