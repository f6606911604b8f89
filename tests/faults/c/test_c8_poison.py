"""C8: one order that raises, whatever is done with it, is put aside and holds up no one."""

import time
from dataclasses import replace
from itertools import pairwise

import pytest
from tests.contracts.database.rows import order
from tests.serve.hook_service import service_context

from gangline.serve.orders import retry_policy, workers
from gangline.serve.orders.workers import OrderService

pytestmark = pytest.mark.row("C8", full="one poison order of 10,000")


class QuickErrand(workers.OrderRunner):
    """Done at once; an order with `poison` in its ref breaks in a way that nobody foresaw."""

    taken: dict[int, float]

    def perform(self):
        self.taken.setdefault(self.order.id, time.monotonic())
        if "poison" in self.order.ref:
            raise ZeroDivisionError("poison")
        return replace(self.order, state="done")


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_poison_order_is_put_aside_and_delays_no_one(tmp_path, monkeypatch, count):
    monkeypatch.setattr(retry_policy, "RETRY_SECONDS", (0.05,) * 4)
    monkeypatch.setattr(workers, "OrderRunner", QuickErrand)
    monkeypatch.setattr(QuickErrand, "taken", {}, raising=False)
    context = service_context(tmp_path, forges={})
    for n in range(count):
        context.database.orders.add(order(f"refs/heads/{'poison' if n == count // 2 else n}"), now=float(n))
    service = OrderService(context)
    service.workers.start()
    wait(lambda: context.database.orders.counts() == {"done": count - 1, "quarantined": 1})
    service.workers.close()
    (poison,) = context.database.orders.list(states=["quarantined"], projects=None, limit=9)
    assert (poison.tries, "ZeroDivisionError" in poison.note) == (5, True)
    begun = sorted(QuickErrand.taken.values())
    assert max(after - before for before, after in pairwise(begun)) <= 1.0
    context.database.close()


def wait(holds, seconds=240.0):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
