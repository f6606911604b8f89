"""Journal of a search: races, packs, entries that are none."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from optuna.storages import JournalStorage
from tests.search.functions import MemoryStore, make_driver

from gangline.errors import IntegrityError, StorageError
from gangline.search.journal import PACK, StoreJournal
from gangline.storage.folder.store import FolderStore

PLACE = "searches/p/s/journal"


def entries(count, worker="w"):
    return [{"op_code": 2, "worker_id": worker, "study_id": 0, "user_attr": {"n": n}} for n in range(count)]


def test_four_writers_leave_every_entry_once_and_no_gap(tmp_path):
    """Each writer begins at its own idea of the end; the store decides who is first."""
    stores = [FolderStore(tmp_path / "store") for _ in range(4)]

    def write(number):
        journal = StoreJournal(stores[number], PLACE)
        for each in entries(30, f"w{number}"):
            journal.append_logs([each])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    logs = list(StoreJournal(stores[0], PLACE).read_logs(0))
    assert len(logs) == 120
    for number in range(4):
        own = [each["user_attr"]["n"] for each in logs if each["worker_id"] == f"w{number}"]
        assert own == list(range(30))


def test_a_write_whose_answer_was_lost_is_not_written_again():
    class Forgetful(MemoryStore):
        answers = 0

        def put_if_absent(self, key, data):
            etag, self.answers = super().put_if_absent(key, data), self.answers + 1
            return None if self.answers == 1 else etag

    store = Forgetful()
    StoreJournal(store, PLACE).append_logs(entries(3))
    assert [each["user_attr"]["n"] for each in StoreJournal(store, PLACE).read_logs(0)] == [0, 1, 2]


def test_any_reader_joins_whole_blocks_and_later_ones_read_a_pack_each():
    """3,000 entries take 12 reads, and those after the last whole block."""
    store = MemoryStore()
    StoreJournal(store, PLACE).append_logs(entries(3_000))
    store.gets = 0
    singly = list(StoreJournal(store, PLACE).read_logs(0))
    assert store.gets > 3_000
    packs = {key: data for key, data in store.objects.items() if "pack-" in key}
    assert len(packs) == 3_000 // PACK
    for key in packs:
        del store.objects[key]
    list(StoreJournal(store, PLACE).read_logs(0))
    assert {key: data for key, data in store.objects.items() if "pack-" in key} == packs  # equal, whoever writes them
    store.gets = 0
    assert list(StoreJournal(store, PLACE).read_logs(0)) == singly
    assert store.gets <= 0.08 * 3_000


def test_a_reader_that_may_not_write_reads_one_by_one():
    class ReadOnly(MemoryStore):
        def put_if_absent(self, key, data):
            if "pack-" in key:
                raise StorageError("403")
            return super().put_if_absent(key, data)

    store = ReadOnly()
    StoreJournal(store, PLACE).append_logs(entries(PACK + 1))
    assert len(list(StoreJournal(store, PLACE).read_logs(0))) == PACK + 1


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"null", b'{"op_code": 99, "worker_id": "w"}', b'{"op_code": true, "worker_id": "w"}',
        b'{"op_code": 5, "worker_id": "w"}', b'{"op_code": 4, "worker_id": 1, "study_id": 0, "datetime_start": ""}',
        b"[" * 5000, b'{"op_code": 2, "worker_id": "w", "x": "' + b"a" * 70_000 + b'"}',
    ],
)  # fmt: skip
def test_an_object_that_is_no_entry_is_named(data):
    store = MemoryStore()
    StoreJournal(store, PLACE).append_logs(entries(1))
    store.put(f"{PLACE}/00000001.json", data)
    with pytest.raises(IntegrityError, match=f"{PLACE}/00000001.json"):
        StoreJournal(store, PLACE).read_logs(0)


def test_a_missing_entry_before_a_later_one_is_named():
    """A new entry in its place would change what all readers have seen."""
    store = MemoryStore()
    StoreJournal(store, PLACE).append_logs(entries(3))
    del store.objects[f"{PLACE}/00000001.json"]
    with pytest.raises(IntegrityError, match=r"00000001.json: .* missing"):
        StoreJournal(store, PLACE).read_logs(0)


def test_a_pack_with_other_entries_is_refused():
    store = MemoryStore()
    store.put(f"{PLACE}/pack-0.json", json.dumps(entries(PACK - 1)).encode())
    with pytest.raises(IntegrityError, match="pack-0"):
        StoreJournal(store, PLACE).read_logs(0)


def test_a_log_that_optuna_cannot_replay_is_no_bug_of_ours():
    store = MemoryStore()
    bad = {"op_code": 5, "worker_id": "w", "trial_id": 7, "param_name": "x", "param_value_internal": 1.0}
    make_driver(store)
    number = sum("journal/0" in key for key in store.objects)
    bad |= {"distribution": '{"name": "NoSuch", "attributes": {}}'}
    trial = {"op_code": 4, "worker_id": "w", "study_id": 0, "datetime_start": "yesterday"}
    store.put(f"searches/demo/s-00000000-aaaa/journal/{number:08d}.json", json.dumps(trial).encode())
    with pytest.raises(IntegrityError, match="Optuna"):
        make_driver(store)


def test_no_pickle_of_a_store_is_opened(monkeypatch):
    """Snapshots of Optuna are pickles; our journal has none to offer."""
    import pickle

    def refuse(*_):
        raise AssertionError("a pickle was opened")

    monkeypatch.setattr(pickle, "loads", refuse)
    JournalStorage(StoreJournal(MemoryStore(), PLACE))
    make_driver(MemoryStore()).run()
