"""The queue of orders in the tables: one queued order per ref, fair turns over projects, leases of drivers, results."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from gangline.serve.database.engine import DatabaseEngine, DatabaseSession, Row, placeholders
from gangline.serve.database.types import Order
from gangline.spec.codec import canonical, from_json

RECENT_ORDERS = 500
"""Newest orders in which a refusal is still reported."""
COLUMNS = "id, project, ref, state, run, not_before, ready, holder, lease_until, body"
_O_COLUMNS = ", ".join(f"o.{name}" for name in COLUMNS.split(", "))
_NEXT = f"""
    SELECT {_O_COLUMNS} FROM turns t JOIN orders o ON o.id = (
        SELECT id FROM orders
        WHERE project = t.project AND state IN ('queued', 'parked') AND not_before <= ? ORDER BY ready, id LIMIT 1)
    ORDER BY t.served, t.project LIMIT 1
"""
_SAME_REF = f"""
    SELECT DISTINCT {_O_COLUMNS} FROM orders o JOIN orders d ON d.project = o.project AND d.ref = o.ref
    WHERE o.state = 'queued' AND d.state = 'driving' AND o.not_before <= ? ORDER BY o.ready, o.id LIMIT 50
"""
_UPDATE = """
    UPDATE orders SET project = ?, ref = ?, state = ?, run = ?, not_before = ?, ready = ?, holder = ?,
    lease_until = ?, body = ? WHERE id = ?
"""
_REFUSED = f"""
    state = 'done' AND run IS NULL AND id IN (
        SELECT MAX(id) FROM (SELECT id, project, ref FROM orders ORDER BY id DESC LIMIT {RECENT_ORDERS}) AS newest
        GROUP BY project, ref)
"""
_WITHDRAWABLE = ("queued", "parked", "driving", "quarantined")
_NEWEST = " ORDER BY id DESC LIMIT ?"
_BY_REQUESTER = "project || '' = ? AND replace(body, ?, '') <> body ORDER BY id DESC LIMIT 1"
"""Walks back from the newest, which is mostly the one: `|| ''` keeps both databases from sorting a project first."""
_FORGET = """
    DELETE FROM orders WHERE id IN (
        SELECT id FROM (SELECT id, ready FROM orders WHERE state = ? ORDER BY id LIMIT ?) AS oldest WHERE ready < ?)
"""
"""Looks at the beginning of an index alone, however many are kept."""


class LeasedOrder(NamedTuple):
    """An order, its holder and the end of the holder's lease."""

    order: Order
    ready: float
    """Start of its wait: orders of one project start in this order."""
    holder: str | None = None
    lease_until: float | None = None


class OrderQueue:
    """Every call is one transaction, durable when it returns."""

    def __init__(self, engine: DatabaseEngine) -> None:
        self._engine = engine

    def add(self, order: Order, *, now: float) -> Order:
        """Queue an order, in place of a queued one that would build the same head; with its number."""
        return self._engine.write(lambda session: insert_order(session, order, now))

    def claim(self, *, holder: str, now: float, lease_seconds: float, max_driving: int | None = None) -> Order | None:
        """The next order that may start, now `driving`: of the project whose last turn is longest ago.

        None: nothing to do. Nothing is to be done either while `max_driving` orders are driven, by any service.
        """

        def work(session: DatabaseSession) -> Order | None:
            session.lock("claim")
            _return_expired(session, now)
            rows = [] if _is_full(session, max_driving) else session.rows(_NEXT, now)
            if not rows:
                return None
            leased = _read_order(rows[0])
            session.execute(
                "UPDATE turns SET served = (SELECT MAX(served) FROM turns) + 1 WHERE project = ?", leased.order.project
            )
            return _lease(session, leased, holder, now + lease_seconds)

        return self._engine.write(work)

    def claim_newer(self, *, holder: str, now: float, lease_seconds: float) -> Order | None:
        """Claim an order for the head of a ref whose older order is driven: the run of that one may be in vain."""

        def work(session: DatabaseSession) -> Order | None:
            session.lock("claim")
            for leased in map(_read_order, session.rows(_SAME_REF, now)):
                if _builds_head(leased.order):
                    return _lease(session, leased, holder, now + lease_seconds)
            return None

        return self._engine.write(work)

    def renew(self, order: int, *, holder: str, now: float, lease_seconds: float) -> bool:
        """False if another service holds it now."""
        return self._change_driven(order, holder, lambda leased: leased._replace(lease_until=now + lease_seconds))

    def settle(self, order: Order, *, holder: str) -> bool:
        """Write state, run, commit, tries, not_before and note of an order that `holder` still has."""

        def change(leased: LeasedOrder) -> LeasedOrder:
            settled = replace(
                leased.order, state=order.state, run=order.run, commit=order.commit, tries=order.tries,
                not_before=order.not_before, note=order.note, trust=order.trust, branch=order.branch,
            )  # fmt: skip
            if order.state == "driving":
                return leased._replace(order=settled)
            return LeasedOrder(settled, max(leased.ready, order.not_before))

        return self._change_driven(order.id, holder, change)

    def unpark(self, run: str, *, now: float) -> bool:
        """Let the parked order of a run start again now, because its fork was approved or its time has come."""

        def work(session: DatabaseSession) -> bool:
            parked = _select(session, f"run = ? AND state = 'parked'{session.for_update}", run)
            for leased in parked:
                _write_order(session, LeasedOrder(replace(leased.order, not_before=0.0), min(leased.ready, now)))
            return bool(parked)

        return self._engine.write(work)

    def drop(self, *, project: str, ref: str, note: str, except_order: int = 0) -> list[Order]:
        """Orders of a ref that have no run which is driven become `dropped`, except order `except_order`."""
        undriven = (
            "project = ? AND ref = ? AND id <> ? AND (state IN ('queued', 'parked')"
            " OR (state = 'driving' AND run IS NULL)) ORDER BY id"
        )

        def work(session: DatabaseSession) -> list[Order]:
            orders = _select(session, f"{undriven}{session.for_update}", project, ref, except_order)
            return [_drop(session, leased, note) for leased in orders]

        return self._engine.write(work)

    def withdraw(self, order: int, *, note: str) -> Order | None:
        """The order as it is then: `dropped`, unless it is over or a run of it is driven; None where it is gone."""

        def work(session: DatabaseSession) -> Order | None:
            leased = _find(session, order)
            if leased is None:
                return None
            is_running = leased.order.state == "driving" and leased.order.run
            if leased.order.state not in _WITHDRAWABLE or is_running:
                return leased.order
            return _drop(session, leased, note)

        return self._engine.write(work)

    def get(self, order: int) -> Order | None:
        return next(iter(_orders(self._engine, "id = ?", order)), None)

    def find_by_requester(self, *, project: str, by: str) -> Order | None:
        """The newest order of `project` that says it was `asked_by` this one."""
        pattern = canonical({"asked_by": by}).decode()[1:-1]  # as a body has it
        return next(iter(_orders(self._engine, _BY_REQUESTER, project, pattern)), None)

    def refused(self, *, projects: Sequence[str] | None, limit: int) -> list[Order]:
        """Newest orders of refs that are over without a run, as the line of their commit does not hold; newest
        first."""
        if projects is not None and not projects:
            return []
        return _orders(self._engine, _REFUSED + _among(projects) + _NEWEST, *(projects or ()), limit)

    def list(self, *, states: Sequence[str], projects: Sequence[str] | None, limit: int) -> list[Order]:
        """Oldest first."""
        if not states or (projects is not None and not projects):
            return []
        condition = f"state IN ({placeholders(states)}){_among(projects)} ORDER BY id LIMIT ?"
        return _orders(self._engine, condition, *states, *(projects or ()), limit)

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

    def _change_driven(self, order: int, holder: str, change: Callable[[LeasedOrder], LeasedOrder]) -> bool:
        def work(session: DatabaseSession) -> bool:
            leased = _find(session, order)
            if leased is None or leased.order.state != "driving" or leased.holder != holder:
                return False
            _write_order(session, change(leased))
            return True

        return self._engine.write(work)


def insert_order(session: DatabaseSession, order: Order, now: float) -> Order:
    """Queue `order`; older ones that would build the same head are dropped: it builds what it finds when it starts."""
    for leased in queued_for_head(session, order) if _builds_head(order) else ():
        _drop(session, leased, "a newer event of the same ref arrived before this one was started")
    session.execute("INSERT INTO turns (project, served) VALUES (?, 0) ON CONFLICT DO NOTHING", order.project)
    fresh = replace(order, id=session.next_number("orders"), created=order.created or now)
    values = _values(LeasedOrder(fresh, max(now, fresh.not_before)))
    session.execute(f"INSERT INTO orders ({COLUMNS}) VALUES ({placeholders(values)})", *values)
    return fresh


def queued_for_head(session: DatabaseSession, order: Order) -> list[LeasedOrder]:
    """Queued orders for the commit at the ref of `order`, kept from others until the transaction ends."""
    condition = f"project = ? AND ref = ? AND state = 'queued'{session.for_update}"
    queued = _select(session, condition, order.project, order.ref)
    place = (order.forge, order.repository)
    return [e for e in queued if (e.order.forge, e.order.repository) == place and _builds_head(e.order)]


def _orders(engine: DatabaseEngine, where: str, *values: object) -> list[Order]:
    return [order.order for order in engine.read(lambda session: _select(session, where, *values))]


def _select(session: DatabaseSession, where: str, *values: object) -> list[LeasedOrder]:
    """Orders by a condition, which may end with their sequence, a limit and a lock."""
    return list(map(_read_order, session.rows(f"SELECT {COLUMNS} FROM orders WHERE {where}", *values)))


def _among(projects: Sequence[str] | None) -> str:
    return f" AND project IN ({placeholders(projects)})" if projects else ""


def _find(session: DatabaseSession, order: int) -> LeasedOrder | None:
    """One order, kept from others until the transaction ends."""
    return next(iter(_select(session, f"id = ?{session.for_update}", order)), None)


def _read_order(row: Row) -> LeasedOrder:
    """The order of a row. Raises IntegrityError where its body is none."""
    return LeasedOrder(from_json(Order, row[9]), ready=row[6], holder=row[7], lease_until=row[8])


def _write_order(session: DatabaseSession, leased: LeasedOrder) -> None:
    """Write an order that the table has."""
    session.execute(_UPDATE, *_values(leased)[1:], leased.order.id)


def _lease(session: DatabaseSession, leased: LeasedOrder, holder: str, until: float) -> Order:
    order = replace(leased.order, state="driving")
    _write_order(session, LeasedOrder(order, leased.ready, holder, until))
    return order


def _drop(session: DatabaseSession, leased: LeasedOrder, note: str) -> Order:
    dropped = replace(leased.order, state="dropped", note=note)
    _write_order(session, LeasedOrder(dropped, leased.ready))
    return dropped


def _values(leased: LeasedOrder) -> tuple[object, ...]:
    order = leased.order
    return (
        order.id, order.project, order.ref, order.state, order.run, float(order.not_before), float(leased.ready),
        leased.holder, leased.lease_until, canonical(order).decode(),
    )  # fmt: skip


def _builds_head(order: Order) -> bool:
    is_plain = order.kind == "run" and order.commit is None and not order.again and not order.overrides
    return order.state == "queued" and is_plain


def _is_full(session: DatabaseSession, max_driving: int | None) -> bool:
    if max_driving is None:
        return False
    return int(session.rows("SELECT COUNT(*) FROM orders WHERE state = 'driving'")[0][0]) >= max_driving


def _return_expired(session: DatabaseSession, now: float) -> None:
    """Queue orders again whose lease has expired; each keeps its run, so nothing is started twice."""
    for leased in _select(session, f"state = 'driving' AND lease_until <= ?{session.for_update}", now):
        _write_order(session, LeasedOrder(replace(leased.order, state="queued", not_before=0.0), leased.ready))
