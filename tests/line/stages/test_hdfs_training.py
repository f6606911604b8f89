"""A line trains from a real HDFS in place; the next commit trains from the cache of the node while HDFS is down."""

from dataclasses import replace

import pytest
from tests.line import repositories
from tests.line.stages.test_dataset_training import LINE, TASK
from tests.train.sets.packed import dataset_of

from gangline.data.versions import set_alias, write_dataset
from gangline.line.stages.run_line import run_line
from gangline.signing.keys import signing_key
from gangline.spec.config.site_tables import CacheTable, SourceTable
from gangline.storage.objects.protocol import list_all

pytestmark = [pytest.mark.tools, pytest.mark.timeout(600)]


def test_a_line_trains_from_hdfs_and_then_from_the_cache(workspace, hdfs, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    made = dataset_of(workspace.store, shards=5, rows=7)
    for shard in made.shards:
        hdfs.put(f"{tmp_path.name}/{shard.path}", workspace.store.get(shard.key).data)
        workspace.store.delete(shard.key)
    shards = tuple(replace(each, source="hdfs", source_path=f"{tmp_path.name}/{each.path}") for each in made.shards)
    made = replace(made, shards=shards)
    key = signing_key(workspace.site, workspace.environ)
    trusted = {key.key_id: key.public}
    write_dataset(workspace.store, made, key, trusted)
    set_alias(workspace.store, made, "latest", key, trusted, who="a@b")
    source = SourceTable(url=hdfs.url, hosts=(hdfs.data_address,), ranks=True)
    site = replace(workspace.site, source={"hdfs": source}, cache=CacheTable(path=str(tmp_path / "nvme"), bytes=1e8))
    where = workspace.where | {"site": site}

    repositories.commit(workspace.repo, {"model.py": TASK, "line.toml": LINE})
    first = run_line(workspace.repo, **where, observer=workspace.seen)
    assert first.run.verdict == "passed", first.run
    kept = {each.name for each in (tmp_path / "nvme" / "shards").glob("pairs-*/*") if not each.suffix}
    assert kept == {each.sha256 for each in made.shards}
    assert not [each for each in list_all(workspace.store, "blobs/") if each.key.rpartition("/")[2] in kept]

    hdfs.stop_data()
    try:
        repositories.commit(workspace.repo, {"model.py": TASK + "# another\n"})
        second = run_line(workspace.repo, **where, observer=workspace.seen)
    finally:
        hdfs.start_data()
    assert second.run.verdict == "passed", second.run
    assert second.metrics["eval_loss"].value == first.metrics["eval_loss"].value
