"""Tokens of the service, by their digests: of a token only its SHA-256 is kept."""

from gangline.serve.database.engine import DatabaseEngine, DatabaseSession, Row
from gangline.serve.database.types import Principal
from gangline.spec.codec import canonical, from_json

_COLUMNS = "digest, created, expires, body"
SHOWN = 8
"""Characters of a digest by which people name a token."""


class Tokens:
    """Principals by the digest of their token."""

    def __init__(self, engine: DatabaseEngine) -> None:
        self._engine = engine

    def add(self, *, digest: str, principal: Principal, expires: float | None, now: float) -> None:
        """Keep a token, in place of one with the same digest."""
        values = (digest, float(now), None if expires is None else float(expires), canonical(principal).decode())

        def work(session: DatabaseSession) -> None:
            session.execute("DELETE FROM tokens WHERE digest = ?", digest)
            session.execute(f"INSERT INTO tokens ({_COLUMNS}) VALUES (?, ?, ?, ?)", *values)

        self._engine.write(work)

    def find(self, digest: str, *, now: float) -> Principal | None:
        """Principal of the token with this digest; None if it is unknown or expired."""
        sql = f"SELECT {_COLUMNS} FROM tokens WHERE digest = ?"
        rows = self._engine.read(lambda session: session.rows(sql, digest))
        if not rows or ((expires := _expires(rows[0])) is not None and expires <= now):
            return None
        return from_json(Principal, rows[0][3])

    def list(self) -> list[tuple[str, Principal, float | None]]:
        """All of them: the first characters of the digest, principal, end."""
        sql = f"SELECT {_COLUMNS} FROM tokens ORDER BY created, digest"
        rows = self._engine.read(lambda session: session.rows(sql))
        return [(str(row[0])[:SHOWN], from_json(Principal, row[3]), _expires(row)) for row in rows]

    def revoke(self, beginning: str) -> int:
        """Delete tokens whose digest begins so; how many."""

        def work(session: DatabaseSession) -> int:
            return session.execute(
                "DELETE FROM tokens WHERE digest >= ? AND digest < ?", beginning, beginning + "\U0010ffff"
            )

        return self._engine.write(work) if beginning else 0


def _expires(row: Row) -> float | None:
    return None if row[2] is None else float(row[2])
