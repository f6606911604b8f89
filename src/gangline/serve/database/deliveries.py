"""Deliveries that were seen: one with the same id or the same body within 30 days is a repeat."""

from gangline.serve.database.engine import DatabaseEngine, DatabaseSession
from gangline.serve.database.orders import insert_order, queued_for_head
from gangline.serve.database.types import Order

REMEMBER_SECONDS = 30 * 86_400.0


class Deliveries:
    """Accepted deliveries, by which a repeat is recognized."""

    def __init__(self, engine: DatabaseEngine) -> None:
        self._engine = engine

    def take_in(
        self,
        *,
        forge: str,
        delivery: str,
        body_digest: str,
        order: Order | None,
        now: float,
        unless_queued: bool = False,
    ) -> bool:
        """Remember a verified delivery and, in the same transaction, queue its order.

        An order that yields is not queued if another of the same head waits: that one was requested, and builds
        what is there, too.

        Returns:
            False where its id or its body was seen in the last 30 days: nothing is queued then.
        """

        def work(session: DatabaseSession) -> bool:
            row = (forge, delivery, body_digest, float(now))
            is_new = _insert(session, row) or (_drop_expired(session, row) and _insert(session, row))
            if is_new and order is not None and not (unless_queued and queued_for_head(session, order)):
                insert_order(session, order, now)
            return is_new

        return self._engine.write(work)

    def forget(self, *, before: float) -> int:
        """Delete older deliveries; returns their number."""

        def work(session: DatabaseSession) -> int:
            return session.execute("DELETE FROM deliveries WHERE seen < ?", before)

        return self._engine.write(work)


def _insert(session: DatabaseSession, row: tuple[str, str, str, float]) -> bool:
    sql = "INSERT INTO deliveries (forge, delivery, body_digest, seen) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
    return session.execute(sql, *row) > 0


def _drop_expired(session: DatabaseSession, row: tuple[str, str, str, float]) -> bool:
    """Delete an earlier delivery with the key of `row` if it has expired; whether it did."""
    forge, delivery, body_digest, now = row
    dropped = session.execute(
        "DELETE FROM deliveries WHERE forge = ? AND (delivery = ? OR body_digest = ?) AND seen < ?",
        forge, delivery, body_digest, now - REMEMBER_SECONDS,
    )  # fmt: skip
    return dropped > 0
