"""Reads lines as they are appended to a file that may not be there yet."""

from pathlib import Path
from typing import Any

from gangline.spec.gang import read_event
from gangline.storage.beneath import read_below


class Tail:
    """Whole lines only; a torn last line waits for its end."""

    def __init__(self, path: Path, *, below: Path | None = None) -> None:
        """Of `path`, where no link is followed `below` that folder; None: below its own."""
        self._path, self._below = path, below or path.parent
        self._offset = 0

    def lines(self) -> list[str]:
        """Lines since last asked."""
        try:
            if self._path.lstat().st_size < self._offset:  # a log that grew too long begins again
                self._offset = 0
        except FileNotFoundError:
            return []
        data = read_below(self._below, self._path, start=self._offset) or b""
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.decode(errors="replace").splitlines()

    def events(self) -> list[dict[str, Any]]:
        """Lines that are JSON objects; a line that a dying process tore is left out."""
        return [event for event in map(read_event, self.lines()) if event is not None]
