"""What is not told as it happens, asked when somebody wants to know: the queue, and runs that lost their driver."""

from gangline.line.lease import read_lease
from gangline.serve.protocol import Orders
from gangline.serve.telemetry import Telemetry
from gangline.spec.record import Record
from gangline.storage.protocol import ObjectStore

MOST_ORDERS = 200
"""Of the queue, oldest first, that are looked at for one that may start."""


def tell_queue(telemetry: Telemetry, orders: Orders, *, now: float) -> None:
    """Orders by state, and since when the oldest may start that has not."""
    waiting = orders.list(states=("queued",), projects=None, limit=MOST_ORDERS)
    since = [max(order.created, order.not_before) for order in waiting if order.not_before <= now]
    telemetry.orders(orders.counts(), max(0.0, now - min(since, default=now)))


def is_overdue(store: ObjectStore, record: Record, *, now: float) -> bool:
    """Did the driver of an open run go without a word? It neither renewed its lease nor let go of it.

    Raises:
        StorageError: The store is away.
        IntegrityError: The lease is none.
    """
    lease = read_lease(store, record.prefix)
    return lease is not None and bool(lease.holder) and lease.expires < now
