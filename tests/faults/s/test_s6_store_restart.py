"""S6: a store killed in the middle of a shard and started again: the save ends well, no upload stays open."""

import threading
import time

import pytest
from tests.contracts.storage.servers import S3Server
from tests.faults.s.shards import KEY, PREFIX, Training, assert_reads

from gangline.checkpoint.format.retention import collect

pytestmark = [pytest.mark.row("S6", full="200 restarts"), pytest.mark.tools]
ELEMENTS = 6 * 2**20
"""A shard of 48 MiB: three parts."""


class Telling:
    """A store that tells when the first part of an upload is through."""

    def __init__(self, store, happened):
        self._store, self._happened = store, happened

    def __getattr__(self, name):
        return getattr(self._store, name)

    def upload(self, key):
        return Parts(self._store.upload(key), self._happened)


class Parts:
    def __init__(self, inner, happened):
        self._inner, self._happened = inner, happened

    def __enter__(self):
        self._upload = self._inner.__enter__()
        return self

    def __exit__(self, *raised):
        return self._inner.__exit__(*raised)

    def part(self, data):
        self._upload.part(data)
        self._happened.set()


@pytest.mark.parametrize("restarts", [1, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
@pytest.mark.parametrize("name", ["minio", "versitygw"])
def test_store_killed_in_mid_shard_loses_nothing(name, tmp_path, restarts):
    server = S3Server(name, tmp_path).start()
    damaged, over = threading.Event(), threading.Event()
    striker = threading.Thread(target=_strike, args=(server, damaged, over))
    striker.start()  # it outlives the servers that it starts: they die with their thread
    try:
        store = server.store("restart")
        training = Training(Telling(store, damaged), elements=ELEMENTS)
        for _ in range(restarts):
            damaged.clear()
            assert training.save(wait=True) is None
            assert damaged.is_set()
            assert_reads(store, training, training.step, elements=ELEMENTS)
        collect(store, PREFIX, KEY, now=time.time() + 61)
        assert store.open_uploads("") == []
        assert_reads(store, training, training.step, elements=ELEMENTS)
    finally:
        server.stop()
        over.set()
        striker.join()


def _strike(server, damaged, over):
    """Kill the store at the first part of each save, and start it again."""
    while not over.is_set():
        if not damaged.wait(0.05):
            continue
        server.kill()
        time.sleep(0.2)
        server.start()
        while damaged.is_set() and not over.is_set():
            time.sleep(0.05)
