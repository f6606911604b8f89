"""The probe: real stores pass, a store that ignores a condition fails closed."""

import pytest

from gangline.errors import StorageError
from gangline.storage.folder.store import FolderStore
from gangline.storage.open import open_store
from gangline.storage.probe import probe

NAMES = [
    "read after write",
    "list after write",
    "first writer wins",
    "stale writer loses",
    "missing key loses",
    "clocks agree",
]


def test_real_stores_pass_and_are_left_clean(store):
    found = probe(store)
    assert {check.name: check.reason for check in found.checks} == dict.fromkeys(NAMES, "holds")
    assert found.conditional_writes
    assert store.list("") == []


def test_store_is_probed_once_a_process(store):
    first = probe(store)
    assert probe(open_store(store.url, credentials="a:b")) is first


class _Careless(FolderStore):
    """Stands for a server that ignores some of the conditions."""

    ignored = "none"

    def put_if_absent(self, key, data):
        return self.put(key, data) if self.ignored == "first" else super().put_if_absent(key, data)

    def compare_and_set(self, key, data, expected):
        is_ignored = self.ignored == ("stale" if self.head(key) else "missing")
        return self.put(key, data) if is_ignored else super().compare_and_set(key, data, expected)


@pytest.mark.row("S11")
@pytest.mark.parametrize(
    ("ignored", "failed"),
    [("first", "first writer wins"), ("stale", "stale writer loses"), ("missing", "missing key loses")],
)
def test_store_that_ignores_a_condition_fails_closed(tmp_path, ignored, failed):
    store = _Careless(tmp_path)
    store.ignored = ignored
    found = probe(store)
    assert not found.conditional_writes
    assert [check.name for check in found.checks if not check.passed] == [failed]


def test_store_that_serves_old_versions_fails_closed(tmp_path):
    class Cached(FolderStore):
        def get(self, key, start=0, size=None):
            self.cache = getattr(self, "cache", {})
            return self.cache.setdefault(key, super().get(key, start, size))

    found = probe(Cached(tmp_path))
    assert not found.conditional_writes


def test_clock_far_away_is_named_but_no_reason_to_refuse(tmp_path, monkeypatch):
    monkeypatch.setattr("gangline.storage.probe.time.time", lambda: 0.0)
    found = probe(FolderStore(tmp_path))
    (failed,) = [check for check in found.checks if not check.passed]
    assert failed.name == "clocks agree"
    assert "synchronise" in failed.reason
    assert found.conditional_writes


def test_unreachable_store_raises(tmp_path):
    with pytest.raises(StorageError, match="found none; make it"):
        probe(FolderStore(tmp_path / "a" / "b" / "c"))
