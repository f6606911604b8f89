"""Is there room for what comes next? One small commit fits into pages that the log has already, a delivery may not."""

import errno
import os
import sqlite3
from pathlib import Path

from gangline.storage.durable import write_synced

ROOM_BYTES = 1 << 20
"""About what a thousand deliveries add to the log."""
_FULL, _READ_ONLY, _DAMAGED = "has a full disk", "is read-only", "is damaged"
_WORDS = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: _READ_ONLY,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
}


def prove_room(database: Path) -> None:
    """Bring a file beside the database to the disk, and remove it; raises OSError where that fails."""
    probe = Path(f"{database}.room")
    probe.unlink(missing_ok=True)
    write_synced(probe, os.urandom(ROOM_BYTES))  # noise, as zeros need no room on some file systems
    probe.unlink()


def words_of(cause: BaseException | None) -> str:
    """What hinders a write, by what the system or SQLite raised; see `serve.types.Trouble.words`."""
    if isinstance(cause, OSError):
        return _WORDS.get(cause.errno or 0, "cannot be written")
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    return _WORDS.get(code, "cannot be written")
