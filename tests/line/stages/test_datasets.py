"""Data sets that a line names: which versions, for whom, what the record says, and a run that makes a version."""

import json
from dataclasses import replace
from hashlib import sha256

import pyarrow as pa
import pytest
from tests.line import repositories

from gangline.data.arrow_shards import ShardWriter
from gangline.data.versions import list_datasets, resolve_dataset, set_alias, write_dataset
from gangline.errors import ConfigError, GateError, IntegrityError
from gangline.line.request.trust import data_access_of
from gangline.line.stages.data_files import DatasetAccess, read_data
from gangline.line.stages.preview import preview
from gangline.line.stages.tracked_files import FetchedFiles
from gangline.signing.keys import signing_key
from gangline.spec.config.line import DataTable, MixTable
from gangline.spec.config.site_tables import SourceTable
from gangline.spec.data_source import DataFile
from gangline.spec.dataset import Dataset, DatasetShard
from gangline.spec.run_flags import stage
from gangline.storage.objects.blobs import put_blob


def shard_of(store, rows, *, split="train", path="a.arrow", source=None):
    shards = []
    writer = ShardWriter(pa.schema({"n": pa.int64()}), lambda data, _: shards.append(data))
    writer.write(pa.record_batch({"n": list(range(rows))}))
    writer.close()
    key = put_blob(store, shards[0])
    return DatasetShard(
        path=path, sha256=key.rpartition("/")[2], size_bytes=len(shards[0]), rows=rows, split=split, source=source,
        source_path="a.arrow" if source else "",
    )  # fmt: skip


def add(workspace, name="wiki", rows=(5,), *, alias="latest", **changes):
    """A version in the store of the workspace."""
    shards = tuple(shard_of(workspace.store, each, path=f"{n}.arrow", **changes) for n, each in enumerate(rows))
    made = Dataset(name=name, num_samples=sum(rows), schema=(("n", "int64"),), shards=shards)
    key = signing_key(workspace.site, workspace.environ)
    trusted = {key.key_id: key.public}
    write_dataset(workspace.store, made, key, trusted)
    set_alias(workspace.store, made, alias, key, trusted, who="a@b")
    return made


def read(workspace, table, *, trust="own", site=None):
    site = site or workspace.site
    allowed = DatasetAccess(
        access=data_access_of(trust, "cheap", site), site=site, trusted=lambda: workspace.sealer.trusted
    )
    return read_data(None, "", table, store=workspace.store, allowed=allowed)[1]


def test_a_version_is_data_of_a_plan_by_digest(workspace):
    made = add(workspace, rows=(5, 3))
    for reference in ("dataset:wiki", f"dataset:wiki@{made.version}", "dataset:wiki@latest"):
        found = read(workspace, DataTable(shards=(reference,), prefetch=3, window=4, parts=2))
        (use,) = found.sets
        assert (use.name, use.version, use.digest) == ("wiki", made.version, made.digest)
        assert (use.num_samples, use.size_bytes, use.weight) == (8, sum(s.size_bytes for s in made.shards), 1.0)
        assert (found.order, found.window, found.parts, found.prefetch) == ("window", 4, 2, 3)
        assert found.files == ()


def test_the_digest_of_the_data_is_that_of_versions_and_weights_and_may_be_demanded(workspace):
    add(workspace), add(workspace, "code", rows=(2,))
    one, two = MixTable(shards="dataset:wiki", weight=1.0), MixTable(shards="dataset:code", weight=0.5)
    first = read(workspace, DataTable(mix=(one, two)))
    assert [use.weight for use in first.sets] == [1.0, 0.5]
    assert first.digest != read(workspace, DataTable(mix=(one, replace(two, weight=0.6)))).digest
    assert read(workspace, DataTable(mix=(one, two), digest=first.digest)) == first
    add(workspace, rows=(6,))  # the alias names another version now
    with pytest.raises(ConfigError, match=rf"data\.digest: wanted {first.digest}, found .* of wiki@"):
        read(workspace, DataTable(mix=(one, two), digest=first.digest))


def test_sets_without_weights_are_trained_on_as_one(workspace):
    add(workspace, rows=(5,)), add(workspace, "code", rows=(2, 1))
    found = read(workspace, DataTable(shards=("dataset:wiki", "dataset:code")))
    assert [use.weight for use in found.sets] == [5.0, 3.0]


def test_a_fork_reads_the_data_sets_that_the_site_opens_by_name_and_no_key_below_them(workspace):
    made = add(workspace)
    for prefixes in (("data/",), ("datasets/wiki-2/",), ("datasets/wik/",)):
        site = replace(workspace.site, store=replace(workspace.site.store, data=prefixes))
        with pytest.raises(ConfigError, match=r"data\.shards\[0\]: wanted a data set that a fork's line may read"):
            read(workspace, DataTable(shards=("dataset:wiki",)), trust="fork", site=site)
    site = replace(workspace.site, store=replace(workspace.site.store, data=("datasets/wiki/",)))
    assert read(workspace, DataTable(shards=("dataset:wiki",)), trust="fork", site=site).sets[0].digest == made.digest
    for trust in ("fork", "own"):
        with pytest.raises(ConfigError, match=r"data\.text\[0\]: wanted .* which gangline keeps for itself"):
            data_access_of(trust, "cheap", site).demand_key("data.text[0]", made.key)
        with pytest.raises(ConfigError, match=r"data\.shards\[0\]: wanted .* which gangline keeps for itself"):
            read(workspace, DataTable(shards=(made.key,)), trust=trust, site=site)


def test_shards_that_stay_in_a_source_are_for_gangs_of_own_commits_where_the_site_says_so(workspace):
    add(workspace, source="hdfs")
    table = DataTable(shards=("dataset:wiki",))
    for source, message in (
        ({}, r"lies in source\.hdfs: wanted that source"),
        ({"hdfs": SourceTable(url="file:///x")}, r"wanted source\.hdfs\.ranks = true"),
    ):
        with pytest.raises(ConfigError, match=message):
            read(workspace, table, site=replace(workspace.site, source=source))
    opened = replace(
        workspace.site, source={"hdfs": SourceTable(url="file:///x", ranks=True)},
        store=replace(workspace.site.store, data=("datasets/wiki/",)),
    )  # fmt: skip
    assert read(workspace, table, site=opened).sets
    with pytest.raises(ConfigError, match="wanted shards in the store for a fork's commit"):
        read(workspace, table, trust="fork", site=opened)


def test_a_version_that_no_trusted_key_signed_is_no_data(workspace, tmp_path):
    made = add(workspace)
    other = {**workspace.environ, "XDG_CONFIG_HOME": str(tmp_path / "other")}
    with pytest.raises(IntegrityError, match="is signed by key"):
        read(replace(workspace, environ=other), DataTable(shards=(f"dataset:wiki@{made.version}",)))


def test_the_record_and_the_plan_page_name_the_version(workspace):
    made = add(workspace, rows=(5,))
    line = repositories.LINE + '[data]\nshards = ["dataset:wiki"]\n'
    repositories.commit(workspace.repo, {"line.toml": line})
    shown = preview(workspace.repo, **workspace.where).data
    assert shown.startswith(f"wiki@{made.version}, 5 samples, ")
    record = workspace.run()
    assert record.inputs.datasets == (f"wiki@{made.version}",)
    assert f"wiki@{made.version}, 5 samples" in stage(record, "build").message
    assert (
        record.inputs.data
        == sha256(json.dumps([["wiki", made.digest, 1.0]], separators=(",", ":")).encode()).hexdigest()
    )


WRITES = """\
import pathlib
import pyarrow as pa
import pyarrow.parquet as pq
pathlib.Path("out").mkdir()
for n in range(3):
    table = pa.table({"n": list(range(n + 1))})
    if n == 2:
        pq.write_table(table, "out/2.parquet")
    else:
        with pa.ipc.new_file(f"out/{n}.arrow", table.schema) as file:
            file.write_table(table)
pathlib.Path("out/notes.txt").write_text("not data")
"""


def makes_a_dataset(workspace, program=WRITES, *, name="wiki", branches='["main"]'):
    line = repositories.LINE.replace("[train]", 'outputs = ["out/**", "out.*"]\n[train]', 1)
    line += f'[publish]\ndataset = "{name}"\nbranches = {branches}\n'
    repositories.commit(workspace.repo, {"answer.py": program, "line.toml": line})


def test_outputs_of_a_run_become_a_version_that_names_the_run_and_that_a_line_trains_on(workspace):
    makes_a_dataset(workspace)
    record = workspace.run()
    made = resolve_dataset(workspace.store, "dataset:wiki", workspace.sealer.trusted)
    assert f"wiki@{made.version}" in stage(record, "publish").message
    assert [(shard.path, shard.rows) for shard in made.shards] == [
        ("out/0.arrow", 1), ("out/1.arrow", 2), ("out/2.parquet-000.arrow", 3)
    ]  # fmt: skip
    assert made.origin.run == record.run.id
    (artifact,) = [each for each in record.artifacts if each.kind == "dataset"]
    assert (artifact.key, artifact.sha256) == (made.key, made.digest)
    again = workspace.run(again=True)
    assert again.run.verdict == "passed"
    assert read(workspace, DataTable(shards=("dataset:wiki",))).sets[0].num_samples == 6


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("open('out.txt', 'w').write('x')", "found none among 1 output"),
        ("open('out.arrow', 'w').write('x')", r"^out\.arrow: wanted rows"),
    ],
)
def test_outputs_that_are_no_shards_are_refused_by_name(workspace, program, message):
    makes_a_dataset(workspace, program)
    with pytest.raises(ConfigError, match=message):
        workspace.run()
    assert list_datasets(workspace.store) == ()


def test_a_branch_that_does_not_publish_a_dirty_tree_and_a_refused_run_make_no_version(workspace):
    makes_a_dataset(workspace, branches='["release"]')
    record = workspace.run()
    assert (stage(record, "publish").state, list_datasets(workspace.store)) == ("skipped", ())
    makes_a_dataset(workspace)
    (workspace.repo / "more.py").write_text("x = 1")
    with pytest.raises(GateError, match="uncommitted changes"):
        workspace.run()
    assert list_datasets(workspace.store) == ()


def test_the_digest_of_data_sets_covers_files_that_dvc_tracks_for_the_commit(workspace):
    add(workspace, rows=(5, 3))
    table = DataTable(shards=("dataset:wiki",))
    plain = read(workspace, table)
    allowed = DatasetAccess(
        access=data_access_of("own", "cheap", workspace.site), site=workspace.site,
        trusted=lambda: workspace.sealer.trusted,
    )  # fmt: skip
    digests = set()
    for data in (b"rows", b"other rows"):
        file = DataFile(path="data/a.csv", key=put_blob(workspace.store, data), size_bytes=len(data))
        fetched = FetchedFiles(code=(file,))
        _, found = read_data(None, "", table, store=workspace.store, allowed=allowed, fetched=fetched)
        assert (found.sets, found.tracked) == (plain.sets, (file,))
        digests.add(found.digest)
    assert len({plain.digest, *digests}) == 3
