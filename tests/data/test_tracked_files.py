"""Files of recorded remotes: fetched once, verified, kept by SHA-256; and remotes that hold something else."""

import hashlib
import json
import os
import socket
from collections import Counter
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.recorded import FILES, LFS_DATA, LFS_OID, RECORDINGS, TRAIN, VERSIONS

from gangline.data.pointers import Pointer, read_dvc_file
from gangline.data.tracked_files import FolderRemote, PointerDigest, RemoteObjects, TrackedFiles
from gangline.errors import ConfigError, IntegrityError, StorageError
from gangline.storage.folder.store import FolderStore

PATHS = ("data/train.csv.dvc", "data/test.csv.dvc", "data/images.dvc")


@dataclass
class Counting:
    """A remote that counts what is read."""

    remote: FolderRemote
    reads: Counter = field(default_factory=Counter)

    def find(self, pattern):
        return self.remote.find(pattern)

    def blocks(self, path):
        self.reads[path] += 1
        return self.remote.blocks(path)


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path / "store")


@pytest.fixture(params=VERSIONS)
def remote(request, tmp_path):
    """A remote as one version of DVC filled it, which a test may change."""
    folder = tmp_path / "remote"
    for path in (RECORDINGS / request.param / "remote").rglob("*"):
        if path.is_file():
            place = folder / path.relative_to(RECORDINGS / request.param / "remote")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())
    return Recorded(request.param, Counting(FolderRemote(folder)))


@dataclass
class Recorded:
    version: str
    counting: Counting

    @property
    def objects(self):
        return RemoteObjects(remote=self.counting, folder="", url="[source.dvc] /remote")

    def pointer(self, path):
        (found,) = read_dvc_file(path, (RECORDINGS / self.version / "repo" / path).read_bytes())
        return found

    def file_of(self, pointer):
        return self.counting.remote.root / self.objects.place_of(pointer)


def fetcher(store, tmp_path, **options):
    spool = tmp_path / "spool"
    spool.mkdir(exist_ok=True)
    return TrackedFiles(store=store, project="demo", spool=spool, **{"most_bytes": 1e9} | options)


def test_every_recorded_file_arrives_as_it_was_and_once(remote, store, tmp_path):
    for expected in (len(FILES), 0):
        one = fetcher(store, tmp_path)
        files = [file for path in PATHS for file in one.files_of(remote.pointer(path), remote.objects)]
        assert {file.path: store.get(file.key).data for file in files} == FILES
        assert {file.key for file in files} == {
            f"blobs/sha256/{hashlib.sha256(data).hexdigest()}" for data in FILES.values()
        }
        assert one.num_fetched == expected
    assert set(remote.counting.reads.values()) == {1}
    assert not list((tmp_path / "spool").iterdir())


def test_a_changed_file_is_refused_with_its_path_and_both_digests(remote, store, tmp_path):
    pointer = remote.pointer("data/train.csv.dvc")
    remote.file_of(pointer).write_bytes(TRAIN.replace(b"1,2", b"1,3"))
    with pytest.raises(
        IntegrityError, match=rf"data/train\.csv: wanted md5 {pointer.digest} .*\[source\.dvc\] /remote"
    ):
        fetcher(store, tmp_path).files_of(pointer, remote.objects)
    assert list(store.list("blobs/")) == list(store.list("pointers/")) == []


def test_a_changed_file_of_a_folder_is_named(remote, store, tmp_path):
    folder = remote.pointer("data/images.dvc")
    listed = json.loads(remote.file_of(folder).read_bytes())
    first = Pointer(path="", kind=folder.kind, digest=listed[0]["md5"], pointed_by="")
    remote.file_of(first).write_bytes(b"other")
    with pytest.raises(IntegrityError, match=rf"data/images/{listed[0]['relpath']}: wanted md5 {listed[0]['md5']}"):
        fetcher(store, tmp_path).files_of(folder, remote.objects)


def test_a_missing_file_is_named_with_the_places_that_were_asked(remote, store, tmp_path):
    pointer = remote.pointer("data/test.csv.dvc")
    remote.file_of(pointer).unlink()
    digest = f"{pointer.digest[:2]}/{pointer.digest[2:]}"
    with pytest.raises(StorageError, match=rf"data/test\.csv: .* found nothing at .*{digest}.*dvc push puts it there"):
        fetcher(store, tmp_path).files_of(pointer, remote.objects)


def test_an_object_of_another_size_is_refused(remote, store, tmp_path):
    pointer = remote.pointer("data/test.csv.dvc")
    longer = Pointer(
        path=pointer.path, kind=pointer.kind, digest=pointer.digest, size_bytes=10, pointed_by=pointer.pointed_by
    )  # fmt: skip
    with pytest.raises(IntegrityError, match=r"of 10 bytes, found md5 .* of 9 bytes"):
        fetcher(store, tmp_path).files_of(longer, remote.objects)


def test_another_file_with_the_md5_of_an_earlier_one_is_noticed(remote, store, tmp_path):
    """Such files can be made, so that the md5 of a pointer is no proof of what a run had."""
    pointer = remote.pointer("data/test.csv.dvc")
    (first,) = fetcher(store, tmp_path).files_of(pointer, remote.objects)
    store.delete(first.key)
    key = f"pointers/demo/{pointer.kind}/{pointer.digest}.json"
    store.put(key, json.dumps({"sha256": "a" * 64, "size_bytes": 9}).encode())
    with pytest.raises(IntegrityError, match="two files with one md5"):
        fetcher(store, tmp_path).files_of(pointer, remote.objects)


def test_a_blob_that_was_deleted_is_fetched_again(remote, store, tmp_path):
    pointer = remote.pointer("data/test.csv.dvc")
    (first,) = fetcher(store, tmp_path).files_of(pointer, remote.objects)
    store.delete(first.key)
    again = fetcher(store, tmp_path)
    assert again.files_of(pointer, remote.objects) == [first]
    assert again.num_fetched == 1


def test_projects_share_no_digest(remote, store, tmp_path):
    pointer = remote.pointer("data/test.csv.dvc")
    fetcher(store, tmp_path).files_of(pointer, remote.objects)
    other = fetcher(store, tmp_path)
    other.project = "other"
    other.files_of(pointer, remote.objects)
    assert other.num_fetched == 1


def test_more_than_the_site_allows_is_not_fetched(remote, store, tmp_path):
    with pytest.raises(ConfigError, match=r"data/train\.csv: wanted at most 20 B .*limits\.tracked_bytes"):
        fetcher(store, tmp_path, most_bytes=20).files_of(remote.pointer("data/train.csv.dvc"), remote.objects)
    with pytest.raises(ConfigError, match=r"data/images/.*limits\.tracked_bytes"):
        fetcher(store, tmp_path, most_bytes=60).files_of(remote.pointer("data/images.dvc"), remote.objects)


@pytest.mark.parametrize("listing", [
    b"{}", b"[1]", b'[{"relpath": "../../x", "md5": "3be95a7c86db05bca7ed7ad848fffa75"}]', b"[" * 5000,
    b'[{"relpath": "/etc/x", "md5": "3be95a7c86db05bca7ed7ad848fffa75"}]',
    b'[{"relpath": "", "md5": "3be95a7c86db05bca7ed7ad848fffa75"}]',
    b'[{"relpath": ["a"], "md5": "3be95a7c86db05bca7ed7ad848fffa75"}]', b'[{"relpath": "a", "md5": 7}]',
    b'[{"relpath": "a//b", "md5": "3be95a7c86db05bca7ed7ad848fffa75"}]',
    b'[{"relpath": "./a", "md5": "3be95a7c86db05bca7ed7ad848fffa75"}]', b'[{"md5": "a"}]',
    *(
        json.dumps([{"relpath": path, "md5": "3be95a7c86db05bca7ed7ad848fffa75"} for path in paths]).encode()
        for paths in (["a", "a"], ["a/b/c", "a"])
    ),
    b'[{"relpath": ".git/config", "md5": "3be95a7c86db05bca7ed7ad848fffa75"}]', b'[{"relpath": "a", "md5": "../x"}]',
])  # fmt: skip
def test_a_list_that_leads_elsewhere_is_refused_though_its_md5_is_right(listing, store, tmp_path):
    digest = hashlib.md5(listing).hexdigest()
    place = tmp_path / "remote" / "files" / "md5" / digest[:2] / f"{digest[2:]}.dir"
    place.parent.mkdir(parents=True)
    place.write_bytes(listing)
    pointer = Pointer(path="data", kind="md5", digest=digest, is_folder=True, pointed_by="data.dvc")
    at = RemoteObjects(remote=FolderRemote(tmp_path / "remote"), folder="", url="/remote")
    with pytest.raises(IntegrityError, match="data: wanted a list of files by md5"):
        fetcher(store, tmp_path).files_of(pointer, at)


def test_an_object_of_git_lfs_arrives_from_its_folder(store, tmp_path):
    at = RemoteObjects(remote=FolderRemote(RECORDINGS / "lfs" / "objects"), folder="", url="objects")
    pointer = Pointer(path="data/w.bin", kind="sha256", digest=LFS_OID, size_bytes=1024, pointed_by="data/w.bin")
    (found,) = fetcher(store, tmp_path).files_of(pointer, at)
    assert found.key == f"blobs/sha256/{LFS_OID}"
    assert store.get(found.key).data == LFS_DATA


def slow_digest(data):
    """As DVC 2.58 computes it: `fobj_md5` of `dvc_data`, for a file read in one piece of a mebibyte each."""
    found, is_text = hashlib.md5(), None
    for start in range(0, len(data), 1 << 20):
        chunk = data[start : start + (1 << 20)]
        if is_text is None:
            block = chunk[:512]
            other = block.translate(None, bytes(range(32, 127)) + b"\n\r\t\f\b")
            is_text = b"\0" not in block and len(other) / len(block) <= 0.30
        found.update(chunk.replace(b"\r\n", b"\n") if is_text else chunk)
    return found.hexdigest()


@given(
    data=st.lists(st.sampled_from([b"\r\n", b"\n", b"\r", b"a", b"\0", b"\xff" * 40]), max_size=30).map(b"".join),
    size=st.integers(1, 7),
)
def test_the_digest_of_dvc_2_does_not_depend_on_how_blocks_arrive(data, size):
    digest = PointerDigest("md5-dos2unix")
    for start in range(0, len(data), size):
        digest.update(data[start : start + size])
    assert digest.hexdigest() == slow_digest(data)


def test_an_end_of_line_across_two_blocks_of_dvc_2_stays_as_it_is():
    data = b"a" * ((1 << 20) - 1) + b"\r\n" + b"b\r\n"
    digest = PointerDigest("md5-dos2unix")
    for start in range(0, len(data), 100_000):
        digest.update(data[start : start + 100_000])
    assert digest.hexdigest() == slow_digest(data) == "deb8178cc400550795d42d701b97846d"


@pytest.mark.parametrize("kind", ["a pipe", "a folder", "a link", "a socket"])
def test_what_is_no_file_stops_no_reader_and_is_named(kind, store, tmp_path):
    root = tmp_path / "objects"
    place = root / LFS_OID[:2] / LFS_OID[2:4] / LFS_OID
    place.parent.mkdir(parents=True)
    made = {"a pipe": os.mkfifo, "a folder": os.mkdir, "a link": lambda path: Path(path).symlink_to("/etc/hostname")}
    with socket.socket(socket.AF_UNIX) as server, chdir(place.parent):
        made.get(kind, server.bind)(place.name)
    pointer = Pointer(path="data/w.bin", kind="sha256", digest=LFS_OID, size_bytes=1024, pointed_by="data/w.bin")
    with pytest.raises(StorageError, match=rf"wanted a file at .*{LFS_OID}, found {kind}"):
        fetcher(store, tmp_path).files_of(pointer, RemoteObjects(remote=FolderRemote(root), folder="", url="objects"))
    with pytest.raises(StorageError, match="wanted to read"):
        list(FolderRemote(root).blocks(str(place.relative_to(root))))
