"""How ranks get shards: from the store or a source, into a cache, with events of the process that has the log."""

import os
from dataclasses import replace
from hashlib import sha256
from types import SimpleNamespace

import pytest

from gangline.errors import ConfigError, IntegrityError, StorageError
from gangline.spec.config.site_tables import SourceTable
from gangline.spec.dataset import DatasetShard
from gangline.spec.gang.driver_orders import ShardAccess
from gangline.storage.folder.store import FolderStore
from gangline.storage.objects import blobs
from gangline.storage.objects.blobs import put_blob
from gangline.train.runtime.shard_files import shard_files

DATA = bytes(range(256)) * 30
SHARD = DatasetShard(path="0.arrow", sha256=sha256(DATA).hexdigest(), size_bytes=len(DATA), rows=1)
AWAY = replace(SHARD, source="disk", source_path="wiki/0.arrow")


class Context(SimpleNamespace):
    """What `shard_files` reads of the context of a rank."""

    def __init__(self, folder, **changes):
        store = FolderStore(folder / "store")
        super().__init__(
            shards=ShardAccess(), data_folder=folder / "data", store=store, open_store=lambda: store, secrets=folder
        )
        self.told = []
        self.events = SimpleNamespace(emit=lambda name, **fields: self.told.append((name, fields)))
        vars(self).update(changes)


def test_a_shard_of_the_store_is_fetched_into_the_gangs_folder_with_an_event(tmp_path, monkeypatch):
    monkeypatch.setattr(blobs, "BLOCK_BYTES", 1000)
    context = Context(tmp_path)
    put_blob(context.store, DATA)
    files = shard_files(context)
    assert files.file(SHARD).read_bytes() == DATA
    assert files.file(SHARD).is_relative_to(tmp_path / "data")
    files.close()
    ((name, fields),) = context.told
    assert name == "shards"
    assert (fields["bytes"], fields["fetched"], fields["cached"]) == (len(DATA), 1, 0)


def test_a_shard_that_the_store_lacks_or_has_wrong_is_named(tmp_path):
    context = Context(tmp_path)
    with pytest.raises(StorageError, match=r"wanted shard 0\.arrow at .* found none"):
        shard_files(context).file(SHARD)
    context.store.put(SHARD.key, DATA[::-1])
    with pytest.raises(IntegrityError, match=SHARD.sha256):
        shard_files(context).file(SHARD)


def test_the_cache_of_the_site_is_used_where_the_driver_names_it(tmp_path):
    context = Context(tmp_path, shards=ShardAccess(cache=str(tmp_path / "nvme"), cache_bytes=1e9))
    put_blob(context.store, DATA)
    assert shard_files(context).file(SHARD) == tmp_path / "nvme" / SHARD.sha256


def test_a_shard_at_a_source_is_read_there_with_the_secret_of_the_gang(tmp_path):
    (tmp_path / "far" / "wiki").mkdir(parents=True)
    (tmp_path / "far" / "wiki" / "0.arrow").write_bytes(DATA)
    (tmp_path / "source.disk").write_text("")
    (tmp_path / "source.disk").chmod(0o600)
    table = SourceTable(url=f"file://{tmp_path}/far", ranks=True)
    context = Context(tmp_path, shards=ShardAccess(sources={"disk": table}))
    assert shard_files(context).file(AWAY).read_bytes() == DATA
    closed = Context(tmp_path / "b", secrets=tmp_path)
    closed.shards = ShardAccess(sources={"disk": replace(table, credentials="source.disk")})
    with pytest.raises(ConfigError, match=r"source\.disk: wanted a secret"):
        shard_files(closed).file(AWAY)


def test_a_source_that_the_gang_may_not_read_is_refused_with_what_works(tmp_path):
    with pytest.raises(ConfigError, match=r"source\.disk\.ranks = true"):
        shard_files(Context(tmp_path)).file(AWAY)


def test_a_forked_process_opens_a_store_of_its_own_and_writes_no_events(tmp_path):
    opened = []
    context = Context(tmp_path)
    put_blob(context.store, DATA)
    context.open_store = lambda: opened.append(os.getpid()) or FolderStore(tmp_path / "store")
    files = shard_files(context)
    child = os.fork()
    if child == 0:
        right = files.file(SHARD).read_bytes() == DATA
        files.close()
        os._exit(0 if right and opened == [os.getpid()] and context.told == [] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
