"""What a run left, fetched: verified, never over another file, never half."""

import hashlib

import pytest

from gangline.errors import IntegrityError, StorageError, UsageError
from gangline.registry import run_artifacts
from gangline.registry.run_artifacts import RunArtifact, fetch_artifacts, select_artifacts
from gangline.storage.open import open_store

DATA = bytes(range(256)) * 100


@pytest.fixture
def store(tmp_path):
    made = open_store(f"file:{tmp_path / 'store'}")
    made.put("runs/x", DATA)
    return made


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(run_artifacts, "_PIECE_BYTES", 1000)


def item(path="out/model.pt", key="runs/x", data=DATA):
    digest = hashlib.sha256(data).hexdigest()
    return RunArtifact(kind="output", path=path, key=key, size_bytes=len(data), sha256=digest)


def get(store, folder, *items, overwrite=False):
    return [path for _, path in fetch_artifacts(store, items, folder, overwrite=overwrite)]


def test_a_file_arrives_under_its_path_and_a_second_time_stays(store, tmp_path):
    (path,) = get(store, tmp_path / "to", item())
    assert path.read_bytes() == DATA
    before = path.stat().st_mtime_ns
    get(store, tmp_path / "to", item())
    assert path.stat().st_mtime_ns == before


def test_another_file_is_not_overwritten_unasked_and_nothing_is_fetched(store, tmp_path):
    (tmp_path / "b").write_text("mine")
    with pytest.raises(UsageError, match="--overwrite"):
        get(store, tmp_path, item("a"), item("b"))
    assert not (tmp_path / "a").exists()
    get(store, tmp_path, item("a"), item("b"), overwrite=True)
    assert (tmp_path / "b").read_bytes() == DATA


def test_content_with_another_digest_is_refused_and_nothing_of_it_stays(store, tmp_path):
    store.put("runs/x", DATA[:-1] + b"?")
    with pytest.raises(IntegrityError, match="wanted digest"):
        get(store, tmp_path / "to", item())
    assert [each for each in (tmp_path / "to").rglob("*") if each.is_file()] == []


def test_a_fetch_that_was_broken_off_continues_and_a_wrong_part_is_begun_again(store, tmp_path):
    class Breaks:
        url = store.url
        left = 5

        def get(self, *arguments):
            self.left -= 1
            if self.left < 0:
                raise StorageError("away")
            return store.get(*arguments)

    with pytest.raises(StorageError):
        get(Breaks(), tmp_path, item())
    assert not (tmp_path / "out/model.pt").exists()
    (part,) = (tmp_path / "out").iterdir()
    assert part.stat().st_size == 5000
    again = Breaks()
    again.left = 21
    get(again, tmp_path, item())
    part.write_bytes(b"?" * 5000)
    (tmp_path / "out/model.pt").unlink()
    get(store, tmp_path, item())
    assert (tmp_path / "out/model.pt").read_bytes() == DATA
    assert not part.exists()


def test_a_pattern_that_names_nothing_or_one_path_twice_is_an_error(store):
    with pytest.raises(UsageError, match=r"found none; files of the run: out/model.pt"):
        select_artifacts([item()], "*.onnx")
    with pytest.raises(UsageError, match="2 times"):
        select_artifacts([item(), item()], "out/**")
