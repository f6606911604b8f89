"""Requests to the keeper as files in the folder of a gang: evict the node of a slow rank, change the number of ranks.

A rank writes an eviction for the generation whose ranks it numbers. `gangline resize` leaves a resize request in the
store, rank 0 copies it into the folder, and the leading keeper acts on it: a keeper uses no store.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from gangline.storage.folder.durable_files import replace_file

EVICT_FILE = "evict.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class EvictionRequest:
    generation: int
    rank: int
    reason: str


def request_eviction(home: Path, wish: EvictionRequest) -> None:
    """Leave the wish in the folder of the gang."""
    replace_file(home / EVICT_FILE, json.dumps(asdict(wish)).encode(), durable=False)


def read_eviction(home: Path, generation: int) -> EvictionRequest | None:
    """The wish of this generation; None: it has none, or what is there is no wish."""
    try:
        wish = EvictionRequest(**json.loads((home / EVICT_FILE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    return wish if wish.generation == generation and isinstance(wish.rank, int) else None


RESIZE_FILE = "resize.json"
"""`{"ranks": number}`, put there by rename."""


class ResizeRequestFile:
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
