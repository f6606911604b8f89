"""Data files onto a node: verified before they appear, fetched once, never outside their folder."""

from hashlib import sha256

import pytest
from tests.train.gang import make_plan

from gangline.errors import ConfigError, IntegrityError, StorageError
from gangline.spec.data_source import DataFile, DataSource
from gangline.storage.open import open_store
from gangline.train.runtime.dataset_files import data_paths, fetch_data_files


def planned(*files):
    return make_plan("none", data=DataSource(files=files))


def stored(store, path, data):
    key = f"blobs/sha256/{sha256(data).hexdigest()}"
    store.put(key, data)
    return DataFile(path=path, key=key, size_bytes=len(data))


@pytest.fixture
def store(tmp_path):
    return open_store(f"file:{tmp_path / 'store'}")


@pytest.mark.parametrize("data", [b"text", b"", b"x" * 100_000])
def test_file_arrives_whole_and_is_not_fetched_again(tmp_path, store, data):
    plan = planned(stored(store, "src/a.py", data))
    fetch_data_files(plan, tmp_path / "data", store)
    path = tmp_path / "data" / "src" / "a.py"
    assert path.read_bytes() == data
    assert data_paths(plan, tmp_path / "data") == [str(path)]
    store.delete(plan.data.files[0].key)
    fetch_data_files(plan, tmp_path / "data", store)


def test_a_plan_without_files_leaves_a_folder(tmp_path, store):
    fetch_data_files(planned(), tmp_path / "data", store)
    assert list((tmp_path / "data").iterdir()) == []


def test_changed_file_is_refused_and_does_not_appear(tmp_path, store):
    file = stored(store, "a.py", b"text")
    store.put(file.key, b"next")
    with pytest.raises(IntegrityError, match=r"a.py should be blobs/sha256/"):
        fetch_data_files(planned(file), tmp_path / "data", store)
    assert list((tmp_path / "data").iterdir()) == []


def test_missing_file_is_the_store_s_fault(tmp_path, store):
    file = DataFile(path="a.py", key=f"blobs/sha256/{'0' * 64}", size_bytes=4)
    with pytest.raises(StorageError, match=r"data file a.py at .* found none"):
        fetch_data_files(planned(file), tmp_path / "data", store)


@pytest.mark.parametrize("path", ["../a", "/etc/passwd", "a/../../b", ""])
def test_name_that_leaves_the_folder_is_refused(tmp_path, path):
    with pytest.raises(ConfigError, match="inside the data folder"):
        data_paths(planned(DataFile(path=path, key="blobs/sha256/" + "0" * 64, size_bytes=1)), tmp_path)
