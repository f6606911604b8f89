"""Checksums of rows: the last column, `seal`, is a digest over all others.

SQLite keeps no checksum of a page: a flipped bit in a text is read back as another text. The seal detects it; it
protects against accidents, not against people who can write the file.
"""

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

from gangline.errors import IntegrityError
from gangline.serve.database.engine import DatabaseSession, Row
from gangline.spec.codec import from_json

T = TypeVar("T")

TABLES: dict[str, tuple[str, ...]] = {
    "deliveries": ("forge", "delivery", "body_digest", "seen"),
    "orders": ("id", "project", "ref", "state", "run", "not_before", "ready", "holder", "lease_until", "body"),
    "runs": (
        "run", "project", "commit_name", "branch", "verdict", "pull_request", "created", "words", "seq", "body",
    ),
    "tokens": ("digest", "created", "expires", "body"),
}  # fmt: skip
"""Columns under the seal, in its order."""


def seal(values: Sequence[object]) -> str:
    """Digest over the columns of a row, as they come back from the database."""
    text = json.dumps(list(values), separators=(",", ":"))
    return blake2b(text.encode(), digest_size=12).hexdigest()


def is_intact(row: Row) -> bool:
    """Do the columns still say what was written? The seal is the last of them."""
    try:
        return bool(seal(row[:-1]) == row[-1])
    except TypeError:  # a flipped bit may make bytes of a text
        return False


def columns(table: str) -> str:
    """All columns of `table` for a SELECT, the seal last."""
    return ", ".join((*TABLES[table], "seal"))


def placeholders(values: Sequence[object]) -> str:
    """A `?` for each, for an IN."""
    return ", ".join("?" * len(values))


def insert(session: DatabaseSession, table: str, values: Sequence[object], *, on_conflict: str = "") -> int:
    """Insert one sealed row; how many were inserted. `on_conflict` is an ON CONFLICT clause."""
    whole = (*values, seal(values))
    sql = f"INSERT INTO {table} ({columns(table)}) VALUES ({placeholders(whole)}) {on_conflict}"
    return session.execute(sql, *whole)


def read_sealed(cls: type[T], table: str, row: Row) -> T:
    """The value of a row: its `body`, once the seal holds.

    Raises:
        IntegrityError: The row is not what was written.
    """
    if not is_intact(row):
        raise IntegrityError(
            f"a row of {table} in the service's database is damaged ({str(row[0])[:60]!r});"
            " restart the service: it moves the damaged file aside and keeps the intact rows"
        )
    return from_json(cls, str(row[TABLES[table].index("body")]))
