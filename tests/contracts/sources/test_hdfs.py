"""A real HDFS: its DataNode by the hosts of the site alone, and a wait while that is down."""

import threading
import time
from dataclasses import replace

import pytest
from requests.adapters import HTTPAdapter

from gangline.data.sources import open_source
from gangline.errors import IntegrityError, StorageError
from gangline.spec.config.site_tables import SourceTable

pytestmark = pytest.mark.tools
DATA = bytes(range(256)) * 8192


@pytest.fixture
def table(hdfs):
    hdfs.put("one.arrow", DATA)
    return SourceTable(url=hdfs.url, hosts=(hdfs.data_address,))


def test_no_request_goes_to_a_data_node_that_is_not_named(table, hdfs, monkeypatch):
    sent, send = [], HTTPAdapter.send
    monkeypatch.setattr(
        HTTPAdapter, "send", lambda self, request, **each: sent.append(request.url) or send(self, request, **each)
    )
    with pytest.raises(IntegrityError, match=f"redirect to {hdfs.data_address}"):
        list(open_source("hdfs", replace(table, hosts=()), {}).blocks("one.arrow"))
    assert sent
    assert all(each.startswith(f"http://{hdfs.address}/") for each in sent)


def test_a_stopped_data_node_is_a_wait(table, hdfs):
    source = open_source("hdfs", replace(table, hosts=("127.0.0.1:*",)), {})
    hdfs.stop_data()
    back = threading.Timer(3.0, hdfs.start_data)
    back.start()
    began = time.monotonic()
    try:
        assert source.read("one.arrow", 256, 512) == DATA[256:768]
    finally:
        back.join()
    assert time.monotonic() - began > 2


def test_a_data_node_that_stays_away_is_exit_40(table, hdfs):
    hdfs.stop_data()
    try:
        with pytest.raises(StorageError, match=r"cannot read one\.arrow"):
            open_source("hdfs", table, {}, deadline_seconds=3.0).read("one.arrow", 0, 10)
    finally:
        hdfs.start_data()
