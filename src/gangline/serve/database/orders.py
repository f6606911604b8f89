"""The queue of orders: their commits, drivers and results; `queue` changes their state in the tables."""

from collections.abc import Sequence
from dataclasses import replace

from gangline.serve.database.engine import DatabaseEngine, DatabaseSession, placeholders
from gangline.serve.database.queue import (
    COLUMNS,
    LeasedOrder,
    claim_newer_order,
    claim_order,
    find,
    insert_order,
    read,
    write,
)
from gangline.serve.database.types import Order
from gangline.spec.codec import canonical

RECENT_ORDERS = 500
"""Newest orders in which a refusal is still reported."""
_REFUSED = f"""
    SELECT {COLUMNS} FROM orders WHERE state = 'done' AND run IS NULL AND id IN (
        SELECT MAX(id) FROM (SELECT id, project, ref FROM orders ORDER BY id DESC LIMIT {RECENT_ORDERS}) AS newest
        GROUP BY project, ref)
"""
_WITHDRAWABLE = ("queued", "parked", "driving", "quarantined")
_NEWEST = " ORDER BY id DESC LIMIT ?"

_BY_REQUESTER = (
    f"SELECT {COLUMNS} FROM orders WHERE project || '' = ? AND replace(body, ?, '') <> body ORDER BY id DESC LIMIT 1"
)
"""Walks back from the newest, which is mostly the one: `|| ''` keeps both databases from sorting a project first."""

_FORGET = """
    DELETE FROM orders WHERE id IN (
        SELECT id FROM (SELECT id, ready FROM orders WHERE state = ? ORDER BY id LIMIT ?) AS oldest WHERE ready < ?)
"""
"""Looks at the beginning of an index alone, however many are kept."""


class OrderQueue:
    """Every call is one transaction, durable when it returns."""

    def __init__(self, engine: DatabaseEngine) -> None:
        self._engine = engine

    def add(self, order: Order, *, now: float) -> Order:
        """Queue an order, in place of a queued one that would build the same head; with its number."""
        return self._engine.write(lambda session: insert_order(session, order, now))

    def claim(self, *, holder: str, now: float, lease_seconds: float, max_driving: int | None = None) -> Order | None:
        """The next order that may start, in fair turn over projects, now `driving`; None: nothing to do.

        Nothing is to be done either while `max_driving` orders are driven, by any service.
        """
        return self._engine.write(
            lambda session: claim_order(
                session, holder=holder, now=now, lease_seconds=lease_seconds, max_driving=max_driving
            )
        )

    def claim_newer(self, *, holder: str, now: float, lease_seconds: float) -> Order | None:
        """Claim an order for the head of a ref whose older order is driven: the run of that one may be in vain."""
        return self._engine.write(
            lambda session: claim_newer_order(session, holder=holder, now=now, lease_seconds=lease_seconds)
        )

    def renew(self, order: int, *, holder: str, now: float, lease_seconds: float) -> bool:
        """False if another service holds it now."""

        def work(session: DatabaseSession) -> bool:
            leased = find(session, order)
            if leased is None or not _is_driven_by(leased, holder):
                return False
            write(session, leased._replace(lease_until=now + lease_seconds))
            return True

        return self._engine.write(work)

    def settle(self, order: Order, *, holder: str) -> bool:
        """Write state, run, commit, tries, not_before and note of an order that `holder` still has."""

        def work(session: DatabaseSession) -> bool:
            leased = find(session, order.id)
            if leased is None or not _is_driven_by(leased, holder):
                return False
            settled = replace(
                leased.order, state=order.state, run=order.run, commit=order.commit, tries=order.tries,
                not_before=order.not_before, note=order.note, trust=order.trust, branch=order.branch,
            )  # fmt: skip
            if order.state == "driving":
                write(session, leased._replace(order=settled))
            else:
                write(session, LeasedOrder(settled, max(leased.ready, order.not_before)))
            return True

        return self._engine.write(work)

    def unpark(self, run: str, *, now: float) -> bool:
        """Let the parked order of a run start again now, because its fork was approved or its time has come."""

        def work(session: DatabaseSession) -> bool:
            sql = f"SELECT {COLUMNS} FROM orders WHERE run = ? AND state = 'parked'{session.for_update}"
            parked = [read(row) for row in session.rows(sql, run)]
            for leased in parked:
                write(session, LeasedOrder(replace(leased.order, not_before=0.0), min(leased.ready, now)))
            return bool(parked)

        return self._engine.write(work)

    def drop(self, *, project: str, ref: str, note: str, except_order: int = 0) -> list[Order]:
        """Orders of a ref that have no run which is driven become `dropped`, except order `except_order`."""

        def work(session: DatabaseSession) -> list[Order]:
            sql = (
                f"SELECT {COLUMNS} FROM orders WHERE project = ? AND ref = ? AND id <> ? AND (state IN"
                f" ('queued', 'parked') OR (state = 'driving' AND run IS NULL)) ORDER BY id{session.for_update}"
            )
            undriven = [read(row) for row in session.rows(sql, project, ref, except_order)]
            dropped = [replace(leased.order, state="dropped", note=note) for leased in undriven]
            for order, leased in zip(dropped, undriven, strict=True):
                write(session, LeasedOrder(order, leased.ready))
            return dropped

        return self._engine.write(work)

    def withdraw(self, order: int, *, note: str) -> Order | None:
        """The order as it is then: `dropped`, unless it is over or a run of it is driven; None where it is gone."""

        def work(session: DatabaseSession) -> Order | None:
            leased = find(session, order)
            if (
                leased is None
                or leased.order.state not in _WITHDRAWABLE
                or (leased.order.state == "driving" and leased.order.run)
            ):
                return None if leased is None else leased.order
            dropped = replace(leased.order, state="dropped", note=note)
            write(session, LeasedOrder(dropped, leased.ready))
            return dropped

        return self._engine.write(work)

    def get(self, order: int) -> Order | None:
        sql = f"SELECT {COLUMNS} FROM orders WHERE id = ?"
        rows = self._engine.read(lambda session: session.rows(sql, order))
        return read(rows[0]).order if rows else None

    def find_by_requester(self, *, project: str, by: str) -> Order | None:
        """The newest order of `project` that says it was `asked_by` this one."""
        pattern = canonical({"asked_by": by}).decode()[1:-1]  # as a body has it
        rows = self._engine.read(lambda session: session.rows(_BY_REQUESTER, project, pattern))
        return read(rows[0]).order if rows else None

    def refused(self, *, projects: Sequence[str] | None, limit: int) -> list[Order]:
        """Newest orders of refs that are over without a run, as the line of their commit does not hold; newest
        first."""
        if projects is not None and not projects:
            return []
        condition = f" AND project IN ({placeholders(projects)})" if projects else ""
        rows = self._engine.read(lambda session: session.rows(_REFUSED + condition + _NEWEST, *(projects or ()), limit))
        return [read(row).order for row in rows]

    def list(self, *, states: Sequence[str], projects: Sequence[str] | None, limit: int) -> list[Order]:
        """Oldest first."""
        if not states or (projects is not None and not projects):
            return []
        condition = f"state IN ({placeholders(states)})" + (
            f" AND project IN ({placeholders(projects)})" if projects else ""
        )
        sql = f"SELECT {COLUMNS} FROM orders WHERE {condition} ORDER BY id LIMIT ?"
        rows = self._engine.read(lambda session: session.rows(sql, *states, *(projects or ()), limit))
        return [read(row).order for row in rows]

    def counts(self) -> dict[str, int]:
        """Orders by state."""
        rows = self._engine.read(lambda session: session.rows("SELECT state, COUNT(*) FROM orders GROUP BY state"))
        return {str(state): int(count) for state, count in rows}

    def forget(self, *, before: float, limit: int) -> int:
        """Delete the oldest orders that are done or dropped and waited last `before`; how many, 0 when none is left.

        At most `limit` of each state in one call, which is one transaction. One that is quarantined stays: somebody is
        to look at it.
        """

        def work(session: DatabaseSession) -> int:
            return sum(session.execute(_FORGET, state, limit, before) for state in ("done", "dropped"))

        return self._engine.write(work)


def _is_driven_by(leased: LeasedOrder, holder: str) -> bool:
    return leased.order.state == "driving" and leased.holder == holder
