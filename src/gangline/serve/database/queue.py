"""The queue of orders in the tables: one queued order per ref, fair turns over projects, leases of drivers."""

from dataclasses import replace
from typing import NamedTuple

from gangline.serve.database.engine import DatabaseSession, Row
from gangline.serve.database.types import Order
from gangline.spec.codec import canonical, from_json

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


class LeasedOrder(NamedTuple):
    """An order, its holder and the end of the holder's lease."""

    order: Order
    ready: float
    """Start of its wait: orders of one project start in this order."""
    holder: str | None = None
    lease_until: float | None = None


def insert_order(session: DatabaseSession, order: Order, now: float) -> Order:
    """Queue `order`; an older one that would build the same ref has become needless."""
    if _builds_head(order):
        _coalesce(session, order)
    session.execute("INSERT INTO turns (project, served) VALUES (?, 0) ON CONFLICT DO NOTHING", order.project)
    fresh = replace(order, id=session.next_number("orders"), created=order.created or now)
    values = _values(LeasedOrder(fresh, max(now, fresh.not_before)))
    session.execute(f"INSERT INTO orders ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", *values)
    return fresh


def claim_order(
    session: DatabaseSession, *, holder: str, now: float, lease_seconds: float, max_driving: int | None
) -> Order | None:
    """The next one that may start, now `driving`: of the project whose last turn is longest ago."""
    session.lock("claim")
    _return_expired(session, now)
    rows = [] if _is_full(session, max_driving) else session.rows(_NEXT, now)
    if not rows:
        return None
    leased = read_order(rows[0])
    session.execute(
        "UPDATE turns SET served = (SELECT MAX(served) FROM turns) + 1 WHERE project = ?", leased.order.project
    )
    order = replace(leased.order, state="driving")
    write_order(session, LeasedOrder(order, leased.ready, holder, now + lease_seconds))
    return order


def claim_newer_order(session: DatabaseSession, *, holder: str, now: float, lease_seconds: float) -> Order | None:
    """The oldest that asks for the head of a ref whose older order is being driven, now `driving`, too."""
    session.lock("claim")
    for row in session.rows(_SAME_REF, now):
        leased = read_order(row)
        if _builds_head(leased.order):
            order = replace(leased.order, state="driving")
            write_order(session, LeasedOrder(order, leased.ready, holder, now + lease_seconds))
            return order
    return None


def find(session: DatabaseSession, order: int) -> LeasedOrder | None:
    """One order, kept from others until the transaction ends."""
    rows = session.rows(f"SELECT {COLUMNS} FROM orders WHERE id = ?{session.for_update}", order)
    return read_order(rows[0]) if rows else None


def queued_for_head(session: DatabaseSession, order: Order) -> list[LeasedOrder]:
    """Queued orders for the commit at the ref of `order`, kept from others until the transaction ends."""
    sql = f"SELECT {COLUMNS} FROM orders WHERE project = ? AND ref = ? AND state = 'queued'{session.for_update}"
    queued = [read_order(row) for row in session.rows(sql, order.project, order.ref)]
    place = (order.forge, order.repository)
    return [e for e in queued if (e.order.forge, e.order.repository) == place and _builds_head(e.order)]


def read_order(row: Row) -> LeasedOrder:
    """The order of a row. Raises IntegrityError where its body is none."""
    return LeasedOrder(from_json(Order, row[9]), ready=row[6], holder=row[7], lease_until=row[8])


def write_order(session: DatabaseSession, leased: LeasedOrder) -> None:
    """Write an order that the table has."""
    session.execute(_UPDATE, *_values(leased)[1:], leased.order.id)


def _values(leased: LeasedOrder) -> tuple[object, ...]:
    order = leased.order
    return (
        order.id, order.project, order.ref, order.state, order.run, float(order.not_before), float(leased.ready),
        leased.holder, leased.lease_until, canonical(order).decode(),
    )  # fmt: skip


def _builds_head(order: Order) -> bool:
    is_plain = order.kind == "run" and order.commit is None and not order.again and not order.overrides
    return order.state == "queued" and is_plain


def _coalesce(session: DatabaseSession, newer: Order) -> None:
    """Drop queued orders of the same head: the newer one builds the head that it finds when it starts."""
    for leased in queued_for_head(session, newer):
        note = "a newer event of the same ref arrived before this one was started"
        write_order(session, LeasedOrder(replace(leased.order, state="dropped", note=note), leased.ready))


def _is_full(session: DatabaseSession, max_driving: int | None) -> bool:
    if max_driving is None:
        return False
    return int(session.rows("SELECT COUNT(*) FROM orders WHERE state = 'driving'")[0][0]) >= max_driving


def _return_expired(session: DatabaseSession, now: float) -> None:
    """Queue orders again whose lease has expired; each keeps its run, so nothing is started twice."""
    sql = f"SELECT {COLUMNS} FROM orders WHERE state = 'driving' AND lease_until <= ?{session.for_update}"
    for row in session.rows(sql, now):
        leased = read_order(row)
        write_order(session, LeasedOrder(replace(leased.order, state="queued", not_before=0.0), leased.ready))
