"""Many writers of one key: what they saw is one register, whatever keeps it."""

import multiprocessing
import random
from concurrent.futures import ThreadPoolExecutor
from secrets import token_hex

import pytest
from tests.faults.instruments.history import History, check

from gangline.storage.folder.store import FolderStore


@pytest.fixture(params=["folder", *[pytest.param(name, marks=pytest.mark.tools) for name in ("minio", "versitygw")]])
def store(request, tmp_path):
    if request.param == "folder":
        return FolderStore(tmp_path / "store")
    return request.getfixturevalue(f"{request.param}_server").store(f"race/{token_hex(8)}")


@pytest.mark.row("C4")
def test_16_workers_on_one_key_are_linearizable(store, seed):
    for number in range(5):
        _one_history(store, f"register/{number}", seed + number, workers=16, turns=3)


@pytest.mark.row("C4", full="10,000 histories of 16 writers")
@pytest.mark.slow
def test_10000_histories_are_linearizable(store, seed):
    for number in range(10_000):
        _one_history(store, f"register/{number}", seed + number, workers=16, turns=1)


def _one_history(store, key, seed, *, workers, turns):
    history = History()

    def work(worker):
        draw = random.Random(seed * 1000 + worker)
        client = history.client(store, worker)
        for turn in range(turns):
            mine = f"{worker}.{turn}".encode()
            value, etag = client.read(key)
            if value is None:
                client.create(key, mine)
            elif draw.random() < 0.8:
                client.swap(key, mine, expected=value, etag=etag)
            else:
                client.put(key, mine)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
    assert len([call for call in history.calls if call.operation == "create" and call.outcome == "ok"]) == 1
    assert check(history.calls) is None, f"seed {seed}"


def _increment(folder, times):
    store = FolderStore(folder)
    done = 0
    while done < times:
        blob = store.get("count")
        if store.compare_and_set("count", b"%d" % (int(blob.data) + 1), blob.etag):
            done += 1


def test_processes_lose_no_increment(tmp_path):
    FolderStore(tmp_path).put("count", b"0")
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_increment, args=(tmp_path, 50)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert FolderStore(tmp_path).get("count").data == b"150"
