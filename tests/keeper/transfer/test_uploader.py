"""The mirror of a gang's output, against a folder store that can go away."""

import pytest

from gangline.errors import StorageError
from gangline.keeper.ipc.environment import KeeperEnvironment
from gangline.keeper.transfer.uploader import OutputMirror, put_logs
from gangline.spec.gang.log_halves import gone_line
from gangline.storage.objects.growing_file import PART_BYTES, read_growing_file
from gangline.storage.open import open_store


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out/ranks").mkdir(parents=True)
    return tmp_path / "out"


@pytest.fixture
def store(tmp_path):
    return open_store(f"file:{tmp_path / 'store'}")


def test_only_what_changed_is_written_again(out, store):
    mirror = OutputMirror(store, out, "runs/p/c/r")
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
    assert OutputMirror(store, out, "r", skip=frozenset({"ranks/1.jsonl"})).sync() == 1
    assert store.get("r/ranks/1.jsonl") is None


def test_links_lead_nowhere(out, store):
    (out / "secret").symlink_to("/etc/hostname")
    assert OutputMirror(store, out, "r").sync() == 0


def test_what_a_store_refused_is_tried_again(out, store, monkeypatch):
    mirror = OutputMirror(store, out, "r")
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
    for name in ("metrics.jsonl", "predictions.jsonl"):
        (out / name).write_bytes(data + b"torn")
    assert OutputMirror(store, out, "r").sync() == 2
    assert store.get("r/predictions.jsonl").data == data, "a program's own file is one object"
    assert len(store.get("r/metrics.jsonl").data) == PART_BYTES
    assert read_growing_file(store, "r/metrics.jsonl", most_bytes=1 << 30) == data


def test_end_of_each_log_of_this_node_goes_to_the_store(tmp_path, store, monkeypatch):
    monkeypatch.setattr("gangline.keeper.transfer.uploader.LOG_BYTES", 20)
    (tmp_path / "logs").mkdir()
    for rank in range(4):
        (tmp_path / "logs" / f"{rank}.log").write_text(f"first of {rank}\nsecond of {rank}\n")
    (tmp_path / "keeper-0.json").write_text("{}")
    environ = {
        "NODE_RANK": "1", "WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "3", "MASTER_ADDR": "a", "MASTER_PORT": "1",
        "GANGLINE_RUN": "r", "GANGLINE_GANG": "r", "GANGLINE_HOME": str(tmp_path), "GANGLINE_PLAN": "p",
        "GANGLINE_CODE": "c", "GANGLINE_STORE": store.url, "GANGLINE_KEY_FILE": "k",
    }  # fmt: skip
    put_logs(store, KeeperEnvironment.read(environ), "runs/p/c/r")
    assert store.get("runs/p/c/r/logs/3.log").data == gone_line(11) + b"second of 3\n"
    assert store.get("runs/p/c/r/logs/2.log") is None, "another node's"
    assert store.get("runs/p/c/r/logs/4.log") is None, "a rank that never started"
