"""Files of a source or a run as shards: each read whole, held to its digest, and not read again by a second call."""

from dataclasses import replace
from hashlib import sha256

import pyarrow as pa
import pytest

from gangline.data.added import AddedFile, add_files
from gangline.data.journal import PackJournal
from gangline.data.shard_reads import shard_blocks, verify_shard
from gangline.errors import ConfigError, IntegrityError, StorageError
from gangline.spec.dataset import DatasetOrigin
from gangline.storage.folder.store import FolderStore


class Killed(BaseException):
    """Stands for a kill -9: nothing catches it."""


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path / "store")


def shard_bytes(rows):
    sink, table = pa.BufferOutputStream(), pa.table({"n": list(range(rows))})
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    return sink.getvalue().to_pybytes()


def files_of(contents, read=None):
    def blocks(number, data):
        if read is not None:
            read.append(number)
        return [data[:10], data[10:]]

    return [
        AddedFile(
            path=f"{number}.arrow", size_bytes=len(data), blocks=lambda number=number, data=data: blocks(number, data)
        )
        for number, data in enumerate(contents)
    ]


def added(files, tmp_path, store, **options):
    return add_files(
        files, name="wiki", origin=DatasetOrigin(source="disk", path="*"), store=store,
        journal=PackJournal(tmp_path / "j.jsonl"), folder=tmp_path, **options,
    )  # fmt: skip


def test_a_second_call_reads_the_file_that_was_open_and_those_after_it(tmp_path, store):
    contents = [shard_bytes(rows) for rows in (1, 2, 3, 4)]
    whole = add_files(
        files_of(contents), name="wiki", origin=DatasetOrigin(source="disk", path="*"), store=store,
        journal=PackJournal(tmp_path / "other.jsonl"), folder=tmp_path,
    )  # fmt: skip
    for dies in range(4):
        (tmp_path / "j.jsonl").unlink(missing_ok=True)
        read = []
        files = files_of(contents, read)

        def die():
            raise Killed

        broken = [*files[:dies], replace(files[dies], blocks=die), *files[dies + 1 :]]
        with pytest.raises(Killed):
            added(broken, tmp_path, store)
        assert read == list(range(dies))
        read.clear()
        assert added(files, tmp_path, store) == whole
        assert read == list(range(dies, 4))
    assert not list(tmp_path.glob("add-*"))


@pytest.mark.parametrize("change", [{"sha256": "0" * 64}, {"size_bytes": 7}])
def test_a_file_of_another_digest_or_size_than_it_must_have_is_refused(tmp_path, store, change):
    data = shard_bytes(3)
    (file,) = files_of([data])
    assert added([replace(file, sha256=sha256(data).hexdigest())], tmp_path, store).num_samples == 3
    (tmp_path / "j.jsonl").unlink()
    with pytest.raises(IntegrityError, match=r"0\.arrow: wanted .* bytes"):
        added([replace(file, **change)], tmp_path, store)


def test_no_files_are_no_data_set(tmp_path, store):
    with pytest.raises(ConfigError, match="wanted 1 to"):
        added([], tmp_path, store)


def test_a_shard_is_read_where_it_lies_and_held_to_its_digest(tmp_path, store):
    data = shard_bytes(3)
    copied = added(files_of([data]), tmp_path, store).shards[0]
    (tmp_path / "j.jsonl").unlink()
    there = added(files_of([data]), tmp_path, store, in_place="disk").shards[0]
    assert (there.source, there.source_path) == ("disk", "0.arrow")

    class Disk:
        @staticmethod
        def blocks(path):
            return iter([b"x", data]) if path != "0.arrow" else iter([data])

    for shard in (copied, there):
        assert b"".join(shard_blocks(store, shard, lambda _: Disk())) == data
        verify_shard(store, shard, lambda _: Disk())
    with pytest.raises(IntegrityError, match=rf"shard 0\.arrow of disk: .*{there.sha256}, found"):
        verify_shard(store, replace(there, source_path="other"), lambda _: Disk())
    store.put(copied.key, data[::-1])
    with pytest.raises(IntegrityError, match=r"shard 0\.arrow of the store"):
        verify_shard(store, copied, lambda _: Disk())
    store.delete(copied.key)
    with pytest.raises(StorageError, match=r"wanted shard 0\.arrow at"):
        verify_shard(store, copied, lambda _: Disk())
