"""Journal of one pack or add: what it finished, a line each, so that a second call continues there."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gangline.errors import CapacityError, storage_errors


class PackJournal:
    """Lines of JSON in a file that belongs to one call with the same inputs; a torn last line does not count."""

    def __init__(self, path: Path) -> None:
        self._path = path
        data = path.read_bytes() if path.exists() else b""
        self._whole_bytes = data.rfind(b"\n") + 1
        self.entries: list[dict[str, Any]] = [json.loads(line) for line in data[: self._whole_bytes].splitlines()]

    @staticmethod
    @contextmanager
    def alone(path: Path) -> "Iterator[PackJournal]":
        """The journal, for this process alone.

        Raises:
            CapacityError: Another process has it.
        """
        lock = path.with_suffix(".lock")
        with storage_errors(lock):
            lock.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise CapacityError(
                    f"wanted {lock}, found another process that packs or adds the same files; wait for its end"
                ) from error
            yield PackJournal(path)
        finally:
            os.close(handle)

    def add(self, entry: dict[str, Any]) -> None:
        """Append one line; it is on the disk when this returns."""
        with storage_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.truncate(self._whole_bytes)
                file.write(json.dumps(entry).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
                self._whole_bytes = file.tell()
        self.entries.append(entry)

    def remove(self) -> None:
        """Delete the file, once the version is written."""
        self._path.unlink(missing_ok=True)
