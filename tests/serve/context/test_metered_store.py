"""The queue and lost drivers are told as they are; calls of a store are counted and change nothing."""

import contextlib
import time
from dataclasses import replace

import pytest
from tests.report.records import passed
from tests.serve.context.test_telemetry import samples

from gangline.errors import StorageError
from gangline.line.run.lease import Lease
from gangline.serve.api.state import report_queue
from gangline.serve.context.metered_store import MeteredStore
from gangline.serve.context.telemetry import Telemetry
from gangline.serve.database.open import open_database
from gangline.serve.database.types import Order
from gangline.serve.runs.indexer import is_lease_overdue
from gangline.spec.codec import canonical
from gangline.storage.folder.store import FolderStore
from gangline.storage.objects.protocol import ObjectStore

NOW = 1_000_000.0


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path / "store")


def test_the_oldest_order_that_may_start_gives_the_age_of_the_queue(tmp_path):
    database = open_database(str(tmp_path / "serve.db"))
    telemetry = Telemetry()
    report_queue(telemetry, database.orders, now=NOW)
    assert samples(telemetry)["queue_oldest_seconds",] == 0
    for ago, wait in ((500.0, 0.0), (900.0, NOW + 60), (700.0, NOW - 200)):
        order = Order(project="p", ref=f"refs/heads/b{ago:.0f}", not_before=wait)
        database.orders.add(order, now=NOW - ago)
    report_queue(telemetry, database.orders, now=NOW)
    found = samples(telemetry)
    database.close()
    assert found["queue_items", "queued"] == 3
    assert found["queue_oldest_seconds",] == 500


def test_a_run_whose_lease_ran_out_is_overdue_one_that_was_let_go_is_not(store):
    records = []
    for name, holder, expires in (("dead", "host:1:2:3:w", -10), ("alive", "host:1:2:3:w", 60), ("parked", "", -500)):
        record = replace(passed(), run=replace(passed().run, id=f"bytegpt-9f31c2a0-{name}", state="open"))
        lease = Lease(holder=holder, token=1, expires=NOW + expires)
        store.put(f"{record.prefix}/lease.json", canonical(lease))
        records.append(record)
    records.append(replace(passed(), run=replace(passed().run, id="bytegpt-9f31c2a0-newer", state="open")))
    assert [is_lease_overdue(store, record, now=NOW) for record in records] == [True, False, False, False]


def test_calls_of_a_store_are_counted_by_what_came_of_them(store):
    telemetry = Telemetry()
    metered = MeteredStore(store, telemetry)
    assert isinstance(metered, ObjectStore)
    etag = metered.put_if_absent("a/b", b"1")
    assert metered.put_if_absent("a/b", b"2") is None
    assert metered.compare_and_set("a/b", b"3", "old") is None
    assert metered.compare_and_set("a/b", b"3", etag) is not None
    assert metered.get("a/b").data == b"3"
    assert metered.get("none") is None
    found = samples(telemetry)
    assert found["store_requests_total", "conflict", "put_if_absent"] == 1
    assert found["store_requests_total", "compare_and_set", "ok"] == 1
    assert found["store_requests_total", "get", "ok"] == 2
    assert found["store_conflicts_total",] == 2
    assert found["store_request_duration_seconds_count", "get"] == 2


def test_a_call_that_failed_is_counted_and_raised(tmp_path):
    class Away(FolderStore):
        def get(self, key, start=0, size=None):
            time.sleep(0.01)
            raise StorageError("away")

    telemetry = Telemetry()
    metered = MeteredStore(Away(tmp_path), telemetry)
    for _ in range(3):
        with contextlib.suppress(StorageError):
            metered.get("a")
    found = samples(telemetry)
    assert found["store_requests_total", "failed", "get"] == 3
    assert found["store_request_duration_seconds_sum", "get"] >= 0.03
