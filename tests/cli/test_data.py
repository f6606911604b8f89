"""`gangline data`: packs, adds, lists, shows, verifies, warms and removes versions; refusals have their exit codes."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.report import records

from gangline.spec.record import Artifact
from gangline.storage.open import open_store


@pytest.fixture
def site(workspace, tmp_path, monkeypatch):
    """A site with a folder as source and a cache; returns the folder of the source."""
    folder = tmp_path / "corpora"
    folder.mkdir()
    file = tmp_path / "site.toml"
    file.write_text(f'[source.disk]\nurl = "file://{folder}"\n[cache]\npath = "{tmp_path}/cache"\nbytes = 1e9\n')
    monkeypatch.setenv("GANGLINE_SITE", str(file))
    return folder


def store_of(workspace):
    return open_store(f"file:{workspace / '.gangline' / 'store'}")


def write_shards(folder, counts=(3, 2)):
    for number, count in enumerate(counts):
        table = pa.table({"n": list(range(count))})
        with pa.ipc.new_file(str(folder / f"{number}.arrow"), table.schema) as file:
            file.write_table(table)


def pack(gangline, workspace, *options, lines=30, name="wiki"):
    path = workspace / "corpus.jsonl"
    if not path.exists():
        path.write_text("".join(json.dumps({"text": f"line {n}"}) + "\n" for n in range(lines)))
    result = gangline("data", "pack", str(path), "--name", name, *options)
    assert result.exit_code == 0, result.output
    return re.search(rf"{name}@([0-9a-f]{{8}})", result.stdout)[1]


def test_pack_makes_the_same_version_of_the_same_files_and_leaves_nothing_behind(gangline, workspace):
    version = pack(gangline, workspace)
    assert pack(gangline, workspace) == version
    assert pack(gangline, workspace, "--holdout", "0.2") != version
    listed = json.loads(gangline("data", "list", "--json").stdout)
    assert len(listed) == 2
    assert [row["aliases"] for row in listed if row["version"] == f"wiki@{version}"] == [[]]
    assert not list((workspace / ".gangline" / "data").glob("*.jsonl"))
    shown = gangline("data", "show", f"wiki@{version}").stdout
    assert "30 samples · 1 shard · " in shown
    assert "used by no run" in shown
    assert "from 1 file" in shown
    differs = gangline("data", "show", f"wiki@{version}", "wiki").stdout
    assert re.search(r"holdout +0\.0 +0\.2", differs)
    assert "no difference" in gangline("data", "show", "wiki", "wiki").stdout


def test_files_that_a_commit_holds_as_they_are_name_it(gangline, workspace):
    (workspace / "corpus.jsonl").write_text('{"text": "a"}\n')
    git = ["git", "-C", str(workspace), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["add", "corpus.jsonl"], ["commit", "-q", "-m", "A corpus"]):
        subprocess.run([*git, *command], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    version = pack(gangline, workspace)
    assert f"of commit {head[:8]}" in gangline("data", "show", "wiki").stdout
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "Another"], check=True)
    assert pack(gangline, workspace) == version


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["pack", "none.jsonl", "--name", "wiki"], 2, "wanted files, found none"),
        (["pack", "line.toml", "--name", "wiki"], 10, "wanted a file that ends in"),
        (["pack", "line.toml", "--name", "Wiki"], 2, "wanted a name of a data set"),
        (["pack", "line.toml", "--name", "wiki", "--tokens", "8"], 2, "--tokens and --tokenizer together"),
        (["pack", "line.toml", "--name", "wiki", "--holdout", "1"], 2, "wanted a share"),
        (["add", "wiki", "--from", "disk"], 2, "wanted SOURCE:GLOB"),
        (["add", "wiki", "--from", "hdfs:*.arrow"], 10, r"wanted \[source.hdfs\] in site.toml, found disk"),
        (["add", "wiki", "--from", "disk:*.arrow"], 10, "found none"),
        (["add", "wiki", "--from", "disk:../*.arrow"], 50, "wanted a path below its URL"),
        (["show", "wiki"], 10, "no data set of that name"),
        (["verify"], 2, "name a data set or say --cache"),
        (["remove", "wiki"], 2, "wanted NAME@VERSION"),
    ],
)
def test_what_is_not_there_or_makes_no_sense_is_refused(gangline, site, arguments, code, message):
    result = gangline("data", *arguments)
    assert result.exit_code == code
    assert re.search(message, str(result.exception))


def test_files_of_a_source_become_a_version_copied_or_in_place(gangline, workspace, site):
    write_shards(site)
    pq.write_table(pa.table({"n": [7, 8]}), site / "2.parquet")
    assert gangline("data", "add", "wiki", "--from", "disk:*").exit_code == 0
    shown = json.loads(gangline("data", "show", "wiki", "--json").stdout)
    assert [(shard["path"], shard["rows"], shard["source"]) for shard in shown["document"]["shards"]] == [
        ("0.arrow", 3, None), ("1.arrow", 2, None), ("2.parquet-000.arrow", 2, None)
    ]  # fmt: skip
    assert shown["document"]["origin"]["source"] == "disk"
    assert gangline("data", "verify", "wiki").stdout == "3 shards verified, each with its digest\n"
    refused = gangline("data", "add", "there", "--from", "disk:*", "--in-place")
    assert (refused.exit_code, "2.parquet: wanted an Arrow IPC file" in str(refused.exception)) == (10, True)
    blobs = len(list((workspace / ".gangline/store/blobs/sha256").iterdir()))
    assert gangline("data", "add", "there", "--from", "disk:*.arrow", "--in-place").exit_code == 0
    assert len(list((workspace / ".gangline/store/blobs/sha256").iterdir())) == blobs + 1  # the document
    assert gangline("data", "warm", "there").exit_code == 0
    assert gangline("data", "verify", "--cache").stdout == "4 shards verified, each with its digest\n", (
        "2 for each kind"
    )


def test_a_shard_that_changed_where_it_lies_is_named_with_both_digests(gangline, workspace, site):
    write_shards(site)
    assert gangline("data", "add", "wiki", "--from", "disk:*.arrow", "--in-place").exit_code == 0
    data = bytearray((site / "1.arrow").read_bytes())
    data[len(data) // 2] ^= 1
    (site / "1.arrow").write_bytes(data)
    result = gangline("data", "verify", "wiki")
    assert result.exit_code == 50
    assert re.search(r"shard 1\.arrow of disk: wanted \d+ bytes of digest [0-9a-f]{64}, found", str(result.exception))
    assert "1 of 2 shards are damaged" in str(result.exception)
    assert gangline("data", "warm", "wiki").exit_code == 50


def test_another_schema_in_one_file_is_refused_by_name(gangline, site):
    write_shards(site)
    table = pa.table({"n": ["a"]})
    with pa.ipc.new_file(str(site / "9.arrow"), table.schema) as file:
        file.write_table(table)
    result = gangline("data", "add", "wiki", "--from", "disk:*.arrow")
    assert result.exit_code == 10
    assert "9.arrow: wanted the columns of 0.arrow" in str(result.exception)


def test_a_version_that_a_run_used_is_not_removed_and_the_lineage_is_found_both_ways(gangline, workspace):
    version = pack(gangline, workspace)
    store, used = store_of(workspace), records.passed()
    used = replace(used, inputs=replace(used.inputs, datasets=(f"wiki@{version}",)))
    store.put(f"{used.prefix}/record.json", used.to_json())
    assert f"used by run {used.run.id}" in gangline("data", "show", "wiki").stdout
    result = gangline("data", "remove", f"wiki@{version}")
    assert result.exit_code == 60
    assert f"run {used.run.id}" in str(result.exception)
    other = pack(gangline, workspace, "--holdout", "0.1")
    assert gangline("data", "alias", f"wiki@{other}", "stable").exit_code == 0
    assert "alias stable" in str(gangline("data", "remove", f"wiki@{other}").exception)
    third = pack(gangline, workspace, "--holdout", "0.3")
    assert gangline("data", "remove", f"wiki@{third}").exit_code == 0
    assert f"wiki@{third}" not in gangline("data", "list").stdout
    assert gangline("data", "show", "wiki@stable").exit_code == 0


def test_a_version_stays_as_long_as_the_run_that_made_it(gangline, workspace):
    version = pack(gangline, workspace)
    store, made = store_of(workspace), records.passed()
    key = f"datasets/wiki/{version}.json"
    data = store.get(key).data
    artifact = Artifact(
        kind="dataset", key=key, media_type="application/json", size_bytes=len(data), sha256=sha256(data).hexdigest()
    )
    store.put(f"{made.prefix}/record.json", replace(made, artifacts=(*made.artifacts, artifact)).to_json())
    assert "used by no run" in gangline("data", "show", "wiki").stdout
    result = gangline("data", "remove", f"wiki@{version}")
    assert (result.exit_code, made.run.id in str(result.exception)) == (60, True)
    store.delete(f"{made.prefix}/record.json")
    assert gangline("data", "remove", f"wiki@{version}").exit_code == 0


def test_a_second_pack_of_the_same_files_at_once_is_refused(gangline, workspace, monkeypatch):
    from gangline.data import pack as module

    seen = []

    def nested(*arguments, **options):
        if not seen:
            seen.append(gangline("data", "pack", str(workspace / "corpus.jsonl"), "--name", "wiki"))
        return original(*arguments, **options)

    original = module.pack
    monkeypatch.setattr(module, "pack", nested)
    pack(gangline, workspace)
    assert seen[0].exit_code == 20
    assert "another process that packs" in str(seen[0].exception)


SLOW = """\
import sys, time
from gangline.data import arrow_shards, pack
from gangline.cli.main import app
keep = pack._SplitStream._keep
pack._SplitStream._keep = lambda *given: (keep(*given), print("shard", flush=True), time.sleep(0.2))
pack.PackOptions.__init__.__kwdefaults__["shard_bytes"] = arrow_shards.BATCH_BYTES
writer = arrow_shards.ShardWriter.__init__
pack.ShardWriter.__init__ = lambda *given, **named: writer(*given, **{**named, "batch_bytes": 200, "shard_bytes": 400})
app(sys.argv[1:])
"""


@pytest.mark.row("DL8")
def test_a_pack_that_was_killed_by_the_kernel_continues_to_the_version_of_an_unbroken_one(gangline, workspace):
    path = workspace / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": f"line {n}" * 5}) + "\n" for n in range(150)))
    command = [sys.executable, "-c", SLOW, "data", "pack", str(path), "--name"]
    unbroken = subprocess.run([*command, "whole"], cwd=workspace, check=True, capture_output=True, text=True)
    shards = unbroken.stdout.count("shard\n")
    assert shards > 4
    for _ in range(2):
        with subprocess.Popen([*command, "broken"], cwd=workspace, stdout=subprocess.PIPE, text=True) as process:
            process.stdout.readline(), process.stdout.readline()
            os.kill(process.pid, signal.SIGKILL)
    last = subprocess.run([*command, "broken"], cwd=workspace, check=True, capture_output=True, text=True)
    assert last.stdout.count("shard\n") <= shards - 4
    both = [json.loads(gangline("data", "show", name, "--json").stdout)["document"] for name in ("whole", "broken")]
    assert both[0]["shards"] == both[1]["shards"]
