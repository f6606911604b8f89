"""The mirror of a gang's output, against a folder store that can go away."""

import pytest

from gangline.errors import StorageError
from gangline.storage.open import open_store
from gangline.train.uploader import Mirror


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out/ranks").mkdir(parents=True)
    return tmp_path / "out"


@pytest.fixture
def store(tmp_path):
    return open_store(f"file:{tmp_path / 'store'}")


def test_only_what_changed_is_written_again(out, store):
    mirror = Mirror(store, out, "runs/p/c/r")
    (out / "metrics.jsonl").write_text('{"step":1}\n{"st')
    (out / "result.json").write_text("{}")
    (out / ".draft").write_text("not yet")
    assert (mirror.sync(), mirror.sync()) == (2, 0)
    assert store.get("runs/p/c/r/metrics.jsonl").data == b'{"step":1}\n'
    (out / "metrics.jsonl").write_text('{"step":1}\n{"step":2}\n')
    assert mirror.sync() == 1
    assert store.get("runs/p/c/r/metrics.jsonl").data == b'{"step":1}\n{"step":2}\n'
    assert store.get("runs/p/c/r/.draft") is None


def test_files_of_other_nodes_are_left_to_them(out, store):
    for rank in (0, 1):
        (out / f"ranks/{rank}.jsonl").write_text("{}\n")
    assert Mirror(store, out, "r", skip=frozenset({"ranks/1.jsonl"})).sync() == 1
    assert store.get("r/ranks/1.jsonl") is None


def test_links_lead_nowhere(out, store):
    (out / "secret").symlink_to("/etc/hostname")
    assert Mirror(store, out, "r").sync() == 0


def test_what_a_store_refused_is_tried_again(out, store, monkeypatch):
    mirror = Mirror(store, out, "r")
    (out / "result.json").write_text("{}")

    def away(key, data):
        raise StorageError("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(store, "put", away)
        with pytest.raises(StorageError):
            mirror.sync()
    assert mirror.sync() == 1


def test_large_files_go_up_in_parts(out, store):
    data = (b"x" * 1023 + b"\n") * (17 << 10)
    (out / "metrics.jsonl").write_bytes(data + b"torn")
    assert Mirror(store, out, "r").sync() == 1
    assert store.get("r/metrics.jsonl").data == data
