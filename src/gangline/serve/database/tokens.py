"""`serve.database.protocol.Tokens` over an engine: of a token only its SHA-256 is kept."""

from gangline.serve.database.engine import DatabaseEngine, DatabaseSession, Row
from gangline.serve.database.row_checksums import columns, insert, read_sealed
from gangline.serve.database.types import Principal
from gangline.spec.codec import canonical

_COLUMNS = columns("tokens")
SHOWN = 8
"""Characters of a digest by which people name a token."""


class SqlTokens:
    """`Tokens` over an engine."""

    def __init__(self, engine: DatabaseEngine) -> None:
        self._engine = engine

    def add(self, *, digest: str, principal: Principal, expires: float | None, now: float) -> None:
        values = (digest, float(now), None if expires is None else float(expires), canonical(principal).decode())

        def work(session: DatabaseSession) -> None:
            session.execute("DELETE FROM tokens WHERE digest = ?", digest)
            insert(session, "tokens", values)

        self._engine.write(work)

    def find(self, digest: str, *, now: float) -> Principal | None:
        sql = f"SELECT {_COLUMNS} FROM tokens WHERE digest = ?"
        rows = self._engine.read(lambda session: session.rows(sql, digest))
        if not rows:
            return None
        principal = read_sealed(Principal, "tokens", rows[0])
        expires = _expires(rows[0])
        return None if expires is not None and expires <= now else principal

    def list(self) -> list[tuple[str, Principal, float | None]]:
        sql = f"SELECT {_COLUMNS} FROM tokens ORDER BY created, digest"
        rows = self._engine.read(lambda session: session.rows(sql))
        return [(str(row[0])[:SHOWN], read_sealed(Principal, "tokens", row), _expires(row)) for row in rows]

    def revoke(self, beginning: str) -> int:
        def work(session: DatabaseSession) -> int:
            return session.execute(
                "DELETE FROM tokens WHERE digest >= ? AND digest < ?", beginning, beginning + "\U0010ffff"
            )

        return self._engine.write(work) if beginning else 0


def _expires(row: Row) -> float | None:
    return None if row[2] is None else float(row[2])
