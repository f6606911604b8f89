"""The wish for another number of ranks, as a file in a gang's folder: who asks writes it, its leading keeper obeys.

`gangline resize` leaves the wish in the store, where rank 0 finds it and puts it here: a keeper knows no store.
"""

import json
from pathlib import Path

RESIZE_FILE = "resize.json"
"""`{"ranks": number}`, put there by rename."""


class ResizeWish:
    """What was wished for last."""

    def __init__(self, home: Path) -> None:
        self._path = home / RESIZE_FILE
        self._seen: tuple[int, int] | None = None
        self._ranks: int | None = None

    def ranks(self) -> int | None:
        """Wanted number of ranks; None: nobody asked. Costs one look at the file."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return self._ranks
        if (found.st_ino, found.st_mtime_ns) != self._seen:
            self._seen = found.st_ino, found.st_mtime_ns
            self._ranks = _read(self._path)
        return self._ranks


def _read(path: Path) -> int | None:
    """What is no wish binds nobody."""
    try:
        ranks = json.loads(path.read_bytes())["ranks"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return ranks if isinstance(ranks, int) and ranks > 0 else None
