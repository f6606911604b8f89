"""Files of the store at their paths in a code folder: whole and verified, or not there."""

import pytest

from gangline.errors import IntegrityError, StorageError
from gangline.spec.data_source import DataFile
from gangline.storage.folder.store import FolderStore
from gangline.storage.objects import blobs
from gangline.storage.objects.blobs import put_blob
from gangline.storage.objects.placed_files import place_files


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path / "store")


@pytest.fixture
def code(tmp_path):
    """A code folder with one file of the commit."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("pass")
    return folder


def file_of(store, path, data):
    return DataFile(path=path, key=put_blob(store, data), size_bytes=len(data))


def test_files_are_at_their_paths_in_pieces_of_any_size(store, code, monkeypatch):
    monkeypatch.setattr(blobs, "BLOCK_BYTES", 7)
    contents = {"data/deep/a.bin": bytes(range(256)), "data/empty": b"", "b": b"x" * 7}
    place_files(store, [file_of(store, path, data) for path, data in contents.items()], code)
    assert {path: (code / path).read_bytes() for path in contents} == contents
    assert sorted(each.name for each in code.rglob("*") if each.is_file()) == ["a.bin", "b", "empty", "train.py"]


def test_a_file_of_another_digest_does_not_appear(store, code):
    file = file_of(store, "data/a", b"rows")
    store.put(file.key, b"swor")
    with pytest.raises(IntegrityError, match="data/a should be blobs/sha256/"):
        place_files(store, [file], code)
    store.delete(file.key)
    with pytest.raises(StorageError, match=r"data file data/a at .* found none"):
        place_files(store, [file], code)
    assert [each.name for each in code.rglob("*") if each.is_file()] == ["train.py"]


@pytest.mark.parametrize("path", ["../a", "/tmp/a", "data/../../a", ".git/hooks/post-checkout", "a\\b", "train.py"])
def test_no_file_leaves_the_folder_or_replaces_one_of_the_commit(store, code, path):
    with pytest.raises(IntegrityError):
        place_files(store, [file_of(store, path, b"rows")], code)
    assert (code / "train.py").read_text() == "pass"
    assert not (code.parent / "a").exists()


def test_a_link_of_the_folder_is_not_followed(store, code, tmp_path):
    (code / "a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IntegrityError):
        place_files(store, [file_of(store, "a", b"rows")], code)
    assert not (tmp_path / "elsewhere").exists()
