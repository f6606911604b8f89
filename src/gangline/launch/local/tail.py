"""Reads lines as they are appended to a file that may not be there yet."""

from pathlib import Path
from typing import Any

from gangline.spec.gang import read_event


class Tail:
    """Whole lines only; a torn last line waits for its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def lines(self) -> list[str]:
        """Lines since last asked."""
        try:
            with self._path.open("rb") as file:
                if self._path.stat().st_size < self._offset:  # a log that grew too long begins anew
                    self._offset = 0
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.decode(errors="replace").splitlines()

    def events(self) -> list[dict[str, Any]]:
        """Lines that are JSON objects; a line that a dying process tore is left out."""
        return [event for event in map(read_event, self.lines()) if event is not None]
