"""What the folder promises beside the contract: versions, durability, and errors that say what works."""

import errno
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gangline.errors import StorageError
from gangline.storage.folder.durable_files import make_folders
from gangline.storage.folder.layout import HIDDEN
from gangline.storage.folder.store import FolderStore
from gangline.storage.objects.multipart import MIN_PART_BYTES
from gangline.storage.objects.protocol import list_all
from gangline.storage.open import open_store


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path / "store")


def test_objects_are_plain_files(store, tmp_path):
    store.put("runs/a/report.html", b"<html>")
    assert (tmp_path / "store" / "runs" / "a" / "report.html").read_bytes() == b"<html>"
    assert store.presign("runs/a/report.html", 60) == f"file://{tmp_path}/store/runs/a/report.html"


def test_a_then_b_then_a_again_is_seen(store):
    versions = {store.put("aba", data) for data in (b"a", b"b", b"a") * 50}
    assert len(versions) == 150


def test_versions_advance_while_the_clock_is_still(store, tmp_path, monkeypatch):
    now = time.time_ns()
    monkeypatch.setattr("gangline.storage.folder.durable_files.time.time_ns", lambda: now)
    stamps = []
    for _ in range(3):
        store.put("k", b"same")
        stamps.append((tmp_path / "store" / "k").stat().st_mtime_ns)
    assert stamps == [now, now + 1, now + 2]


def test_version_stays_seen_where_time_stamps_are_coarse(store, tmp_path, monkeypatch):
    real = os.utime

    def coarse(path, *, ns, follow_symlinks):
        stamps = tuple(each // 2_000_000_000 * 2_000_000_000 for each in ns)
        real(path, ns=stamps, follow_symlinks=follow_symlinks)

    monkeypatch.setattr("gangline.storage.folder.durable_files.os.utime", coarse)
    assert len({store.put("aba", data) for data in (b"a", b"b", b"a")}) == 3


def test_edit_by_hand_is_a_new_version(store, tmp_path):
    old = store.put("record", b"1")
    (tmp_path / "store" / "record").write_bytes(b"2")
    assert store.compare_and_set("record", b"3", old) is None


def test_version_is_the_same_to_another_process(store, tmp_path):
    etag = store.put("k", b"v")
    folder = str(tmp_path / "store")
    code = f"from gangline.storage.folder.store import FolderStore; print(FolderStore({folder!r}).get('k').etag)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == etag + "\n"
    )


def test_reading_makes_no_folder(tmp_path):
    store = FolderStore(tmp_path / "store")
    assert store.get("a") is None
    assert store.list("") == []
    assert store.open_uploads() == []
    store.delete("a")
    assert not (tmp_path / "store").exists()


def test_folder_and_parent_are_made_but_no_grandparent(tmp_path):
    assert FolderStore(tmp_path / ".gangline" / "store").put("a", b"1")
    away = FolderStore(tmp_path / "mount" / "team" / "store")
    for write in (lambda: away.put("a", b""), lambda: away.put_if_absent("a", b""), lambda: away.upload("a")):
        with pytest.raises(StorageError, match=r"mount, found none; make it \(or mount it\)"):
            write()


def test_no_key_lies_below_another(store):
    store.put("a/b", b"file")
    for write in (store.put, store.put_if_absent):
        with pytest.raises(StorageError, match="write a: other keys lie below this one"):
            write("a", b"")
        with pytest.raises(StorageError, match="write a/b/c: a part of the key is an object already"):
            write("a/b/c", b"")
    assert store.get("a") is None
    assert store.get("a/b/c") is None
    assert store.head("a/b/c") is None
    store.delete("a/b")
    assert store.put("a", b"now it may")


def test_deleting_leaves_no_empty_folders(store, tmp_path):
    store.put("deep/er/key", b"")
    store.put("deep/other", b"")
    store.delete("deep/er/key")
    assert sorted(each.name for each in (tmp_path / "store" / "deep").iterdir()) == ["other"]
    store.delete("deep/other")
    assert [each.name for each in (tmp_path / "store").iterdir()] == [HIDDEN]


def test_a_folder_that_another_makes_and_takes_away_is_made_and_a_file_is_in_the_way(tmp_path, monkeypatch):
    folder, made, tries = tmp_path / "busy", Path.mkdir, []

    def mkdir(self, *arguments, **more):
        tries.append(self)
        if len(tries) == 1:
            raise FileExistsError(errno.EEXIST, "File exists", str(self))
        made(self, *arguments, **more)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    make_folders(folder)
    assert folder.is_dir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for name in ("file", "link"):
        with pytest.raises(NotADirectoryError):
            make_folders(tmp_path / name)


def test_writers_and_deleters_of_one_folder_do_not_meet(store):
    def churn(i):
        for _ in range(40):
            store.put(f"busy/folder/{i}", b"x")
            store.delete(f"busy/folder/{i}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(churn, range(8)))
    assert store.list("") == []


def test_reader_sees_whole_objects_only(store):
    contents = [bytes([i]) * 200_000 for i in range(4)]
    store.put("k", contents[0])
    done = threading.Event()

    def write():
        for i in range(60):
            store.put("k", contents[i % 4])
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    reads = 0
    while not done.is_set():
        assert store.get("k").data in contents
        reads += 1
    writer.join()
    assert reads > 0


def test_killed_writer_leaves_nothing_visible_and_is_swept(store, tmp_path):
    store.put("k", b"old")
    incoming = tmp_path / "store" / HIDDEN / "incoming"
    (incoming / "lost").write_bytes(b"half")
    (incoming / "fresh").write_bytes(b"of a living writer")
    yesterday = time.time() - 2 * 24 * 3600
    os.utime(incoming / "lost", (yesterday, yesterday))
    assert [entry.key for entry in store.list("")] == ["k"]
    FolderStore(tmp_path / "store").put("k", b"new")
    assert [each.name for each in incoming.iterdir()] == ["fresh"]


def test_lock_of_a_killed_writer_is_free(store, tmp_path):
    code = f"""
import os, signal
from gangline.storage.folder.store import FolderStore
with FolderStore({str(tmp_path / "store")!r})._locked("k"):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert store.put("k", b"not blocked")


def test_store_url_opens_the_same_store_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = open_store("file:.gangline/store")
    store.put("a", b"1")
    monkeypatch.chdir("/")
    assert open_store(store.url).get("a").data == b"1"


def test_page_after_any_key_is_the_rest(store):
    keys = ["a", "a-/x", "a.b", "b/a", "b/a-b", "b/c/d", "b-c", "b.d", "c"]
    for key in keys:
        store.put(key, b"")
    ordered = sorted(keys)
    assert [entry.key for entry in list_all(store, "")] == ordered
    for after in ordered:
        assert [entry.key for entry in store.list("", after)] == [key for key in ordered if key > after]


def test_part_that_failed_half_way_is_given_again(store, tmp_path):
    with store.upload("big") as upload:
        upload.part(b"a" * MIN_PART_BYTES)
        with (tmp_path / "store" / HIDDEN / "uploads" / upload.upload_id).open("ab") as file:
            file.write(b"half of a part that met a full disk")
        upload.part(b"tail")
    assert store.get("big").data == b"a" * MIN_PART_BYTES + b"tail"
    assert list((tmp_path / "store" / HIDDEN / "uploads").iterdir()) == []


def test_upload_aborted_by_another_says_so(store):
    def upload():
        with store.upload("big") as parts:
            store.abort_upload(store.open_uploads()[0])
            parts.part(b"x")

    with pytest.raises(StorageError, match="was aborted or completed; begin a new one"):
        upload()
    assert store.get("big") is None


class TestDisk:
    """On small mounts of our own; a test that may not mount skips."""

    @pytest.fixture
    def mount(self, tmp_path):
        mounted = []

        def mount(*options):
            folder = tmp_path / "disk"
            folder.mkdir(exist_ok=True)
            command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                pytest.skip("mounting a tmpfs needs root")
            mounted.append(folder)
            return folder

        yield mount
        for folder in mounted:
            subprocess.run(["umount", str(folder)], check=True)

    @pytest.mark.row("S5")
    def test_full_disk_keeps_what_was_there(self, mount):
        store = FolderStore(mount("size=2m") / "store")
        old = store.put("k", b"x" * 500_000)
        for write in (
            lambda: store.put("k", b"y" * 3_000_000),
            lambda: store.put_if_absent("new", b"y" * 3_000_000),
            lambda: store.compare_and_set("k", b"y" * 3_000_000, old),
        ):
            with pytest.raises(StorageError, match=r"no space is left; free some, or choose another store\.url"):
                write()
        assert store.get("k").etag == old
        assert [entry.key for entry in store.list("")] == ["k"]
        assert store.put("k2", b"z" * 800_000), "a failed write gives its space back"

    @pytest.mark.row("S5")
    def test_full_disk_aborts_an_upload(self, mount):
        store = FolderStore(mount("size=2m") / "store")

        def upload():
            with store.upload("big") as parts:
                parts.part(b"x" * 3_000_000)

        with pytest.raises(StorageError, match="no space is left"):
            upload()
        assert store.open_uploads() == []
        assert store.put("k", b"z" * 1_500_000)

    def test_read_only_folder_reads_and_refuses_to_write(self, mount):
        folder = mount("size=2m")
        FolderStore(folder / "store").put("k", b"v")
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        store = FolderStore(folder / "store")
        assert store.get("k").data == b"v"
        assert [entry.key for entry in store.list("")] == ["k"]
        for write in (
            lambda: store.put("k", b""),
            lambda: store.put_if_absent("new", b""),
            lambda: store.delete("k"),
            lambda: store.upload("k"),
        ):
            with pytest.raises(StorageError, match="mounted read-only; mount it writable"):
                write()

    def test_store_whose_mount_went_away_is_not_taken_for_an_empty_one(self, mount):
        folder = mount("size=2m")
        store, reader = FolderStore(folder / "store"), FolderStore(folder / "store")
        store.put("k", b"v")
        assert reader.list("")
        (folder / "store").rename(folder / "elsewhere")  # as an unmount of `store` looks from here
        (folder / "store").mkdir()
        for each in (store, reader):
            for call in (
                lambda s=each: s.get("k"), lambda s=each: s.head("k"), lambda s=each: s.list(""),
                lambda s=each: s.put("new", b""), lambda s=each: s.put_if_absent("new", b""),
                lambda s=each: s.compare_and_set("k", b"", "x"), lambda s=each: s.delete("k"),
                lambda s=each: s.read_into("k", 0, []), lambda s=each: s.upload("k").__enter__(),
            ):  # fmt: skip
                with pytest.raises(StorageError, match="the store folder is missing; mount it again"):
                    call()
        assert list((folder / "store").iterdir()) == []
        assert FolderStore(folder / "store").list("") == [], "who never saw it cannot know"
        (folder / "store").rmdir()
        (folder / "elsewhere").rename(folder / "store")
        assert (store.get("k").data, reader.get("k").data) == (b"v", b"v")
        assert store.put("k", b"w")
