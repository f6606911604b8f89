"""Errands that a worker has in hand."""

import threading

from gangline.serve.orders.workers import OrderService


def test_two_errands_of_one_order_end_apart(yard, monkeypatch):
    """An order that parks and is woken before its first worker has put it down."""
    order, both = yard.order(), threading.Barrier(2, timeout=30)
    service = OrderService(yard.context).workers
    monkeypatch.setattr(service, "_outcome", lambda runner: (both.wait(), runner.order)[1])
    monkeypatch.setattr(service, "_settle", lambda order, runner: both.wait())
    failed = []

    def take():
        try:
            service._process(order)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=take) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert failed == []
    assert service.driving() == []
