"""Messages between ranks and their keeper, as files in the folder of the gang.

- `evict.json`: a rank requests that the keeper leaves out the node of a slow rank.
- `resize.json`: another number of ranks. `gangline resize` leaves the request in the store, rank 0 copies it into the
  folder, and the leading keeper acts on it: a keeper uses no store.
- `live.json`: the keeper passes to live replicas the address at which they meet a replaced rank.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from gangline.spec.plan import Plan
from gangline.storage.folder.durable_files import replace_file

EVICT_FILE = "evict.json"
RESIZE_FILE = "resize.json"
"""`{"ranks": number}`, replaced by rename."""
REJOIN_FILE = "live.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class EvictionRequest:
    """Request to restart the gang without the node of one rank."""

    generation: int
    """Whose ranks it numbers."""
    rank: int
    reason: str


def request_eviction(home: Path, request: EvictionRequest) -> None:
    """Write the request to the folder of the gang."""
    replace_file(home / EVICT_FILE, json.dumps(asdict(request)).encode(), durable=False)


def read_eviction(home: Path, generation: int) -> EvictionRequest | None:
    """The request of this generation; None: there is none, or the file is not a request."""
    try:
        request = EvictionRequest(**json.loads((home / EVICT_FILE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    return request if request.generation == generation and isinstance(request.rank, int) else None


class ResizeRequestFile:
    """The latest resize request of a gang."""

    def __init__(self, home: Path) -> None:
        self._path = home / RESIZE_FILE
        self._seen: tuple[int, int] | None = None
        self._ranks: int | None = None

    def ranks(self) -> int | None:
        """Requested number of ranks; None: no request. Reads the file only when it changed."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return self._ranks
        if (status.st_ino, status.st_mtime_ns) != self._seen:
            self._seen = status.st_ino, status.st_mtime_ns
            self._ranks = _read_ranks(self._path)
        return self._ranks


def _read_ranks(path: Path) -> int | None:
    """None: the file is not a valid request, which is ignored."""
    try:
        ranks = json.loads(path.read_bytes())["ranks"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return ranks if isinstance(ranks, int) and ranks > 0 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class RejoinMessage:
    """Message of the keeper to ranks that stay when one is lost: where the next generation meets."""

    generation: int
    """It begins when all ranks have met."""
    port: int
    """Port of its rendezvous store."""


def is_live(plan: Plan) -> bool:
    """Ranks of `plan` stay when one is lost: in the run's own training, of a task."""
    return plan.recovery.mode == "live" and plan.role == "train" and plan.program.task is not None


def write_rejoin(home: Path, message: RejoinMessage) -> None:
    """Write the message to the folder of the gang, in place of any earlier one."""
    replace_file(home / REJOIN_FILE, json.dumps(asdict(message)).encode(), durable=False)


def read_rejoin(home: Path) -> RejoinMessage | None:
    """The latest message; None: there is none."""
    try:
        return RejoinMessage(**json.loads((home / REJOIN_FILE).read_bytes()))
    except FileNotFoundError:
        return None


def remove_rejoin(home: Path) -> None:
    """Remove a message that an earlier keeper left in this folder."""
    (home / REJOIN_FILE).unlink(missing_ok=True)
