"""What is not told as it happens, asked when somebody wants to know: the queue, and runs that lost their driver."""

from collections.abc import Iterable

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


def tell_overdue(telemetry: Telemetry, store: ObjectStore, open_runs: Iterable[Record], *, now: float) -> None:
    """Open runs whose driver went without a word: it neither renewed its lease nor let go of it.

    Raises:
        StorageError: The store is away.
    """
    leases = (read_lease(store, record.prefix) for record in open_runs)
    telemetry.leases_overdue(sum(1 for each in leases if each is not None and each.holder and each.expires < now))
