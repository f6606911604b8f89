"""The whole line with its records, checkpoints and models on real S3 servers, and what trouble with them leads to."""

import os
import subprocess
import sys
import time
from pathlib import Path
from secrets import token_hex

import pytest
from tests.line import repositories
from tests.line.conftest import Remembers, Workspace
from tests.ports import free_port

from gangline.checkpoint.format.manifest import list_checkpoints
from gangline.drill.invariants import spellings
from gangline.errors import IntegrityError, StorageError
from gangline.line.gangs.launchers import gang_credentials
from gangline.line.request.trust import rights_of
from gangline.line.stages.run_line import run_line
from gangline.registry.run_artifacts import fetch_artifacts, list_artifacts, select_artifacts
from gangline.spec.config.site import Site, StoreTable
from gangline.spec.record import STAGES, CommitInfo, Inputs, Record, RunInfo
from gangline.spec.run_flags import stage
from gangline.storage import site_paths
from gangline.storage.copy import copy_store
from gangline.storage.folder.store import FolderStore
from gangline.storage.objects.protocol import list_all

BYTEGPT = Path(__file__).parents[3] / "examples" / "bytegpt"
DEADLINE_SECONDS = 150.0
TELLS_ITS_ENVIRONMENT = (
    repositories.PROGRAM
    + """
(out / "environment.txt").write_text("\\n".join(f"{name}={value}" for name, value in os.environ.items()))
print(os.environ)
"""
)
SMALL_GPT = """\
[project]
name = "bytegpt"
task = "model:ByteGPT"
[data]
text = ["repo:src/**/*.py"]
[model]
layers = 1
width = 32
context = 32
[optimizer.elementwise]
rule = "adamw"
lr = 1e-3
[train]
steps = 600
global_batch = 16
ranks = 2
strategy = "ddp"
checkpoint = { every = 50 }
[evaluate]
seeds = 1
"""
SITE = """\
[store]
url = "{url}"
endpoint = "{endpoint}"
credentials = "secret:env:S3_KEY"
"""


@pytest.fixture
def s3_workspace(s3_server, tmp_path):
    """A workspace whose site keeps everything below a prefix of its own in the bucket of a server."""
    store = StoreTable(
        url=f"s3://{s3_server.bucket}/{token_hex(4)}", endpoint=s3_server.endpoint, credentials="secret:env:S3_KEY"
    )
    environ = {
        "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"), "S3_KEY": s3_server.credentials,
    }  # fmt: skip
    return Workspace(repositories.make_repository(tmp_path / "repo"), Site(store=store), environ)


def places_of_the_secret(workspace, secret):
    """Keys and files that hold the store's secret in any spelling."""
    wanted = list(spellings(secret.encode()))
    objects = {entry.key: workspace.store.get(entry.key).data for entry in list_all(workspace.store, "")}
    files = {str(path): path.read_bytes() for path in (workspace.repo / ".gangline").rglob("*") if path.is_file()}
    assert len(objects) > 10
    return [name for name, data in {**objects, **files}.items() if any(each in data for each in wanted)]


def test_a_command_goes_the_whole_line_and_sees_no_secret(s3_workspace, s3_server, tmp_path):
    repositories.commit(s3_workspace.repo, {"answer.py": TELLS_ITS_ENVIRONMENT})
    record = s3_workspace.run()
    assert record.run.verdict == "passed"
    assert {stage(record, name).state for name in STAGES} <= {"done", "skipped"}
    prefix = f"runs/cheap/{record.commit.sha}/{record.run.id}"
    kept = {entry.key.removeprefix(f"{prefix}/") for entry in list_all(s3_workspace.store, prefix)}
    assert {"record.json", "plan.json", "report.html"} <= kept
    assert {"gang/metrics.jsonl", "gang/result.json", "gang/environment.txt"} <= kept
    assert b"GANGLINE_STORE_CREDENTIALS_FILE" in s3_workspace.store.get(f"{prefix}/gang/environment.txt").data
    assert places_of_the_secret(s3_workspace, s3_server.secret_key) == []
    s3_workspace.store.put("canary", s3_server.credentials.encode())
    assert places_of_the_secret(s3_workspace, s3_server.secret_key) == ["canary"]
    copied = copy_store(s3_workspace.store, FolderStore(tmp_path / "copy"), "")
    assert copied.num_copied == len(list(list_all(s3_workspace.store, "")))
    back = s3_server.store(token_hex(4))
    copy_store(FolderStore(tmp_path / "copy"), back, "")
    assert back.get(f"{prefix}/record.json").data == s3_workspace.store.get(f"{prefix}/record.json").data


def test_outputs_go_to_the_server_in_parts_and_come_back_verified(s3_workspace, tmp_path):
    script = "import os; os.makedirs('out'); open('out/model.pt', 'wb').write(b'x' * (20 << 20))\n"
    line = repositories.LINE.replace("[train]", 'outputs = ["out/**"]\n[train]', 1)
    repositories.commit(s3_workspace.repo, {"answer.py": script, "line.toml": line})
    record = s3_workspace.run()
    assert (record.outputs.num_files, record.outputs.size_bytes) == (1, 20 << 20)
    ((_, path),) = fetch_artifacts(
        s3_workspace.store,
        select_artifacts(list_artifacts(s3_workspace.store, record), "out/*"),
        tmp_path,
        overwrite=False,
    )
    assert path.read_bytes() == b"x" * (20 << 20)
    assert list(s3_workspace.store.open_uploads("")) == []


@pytest.mark.timeout(280)
def test_a_training_outlives_its_driver_and_a_restart_of_the_server(s3_workspace, s3_server, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    text = {"src/text.py": "the quick brown fox jumps over the lazy dog\n" * 400}
    model = {"model.py": (BYTEGPT / "model.py").read_text(), "line.toml": SMALL_GPT}
    repositories.commit(s3_workspace.repo, {**text, **model})
    repositories.settle_inventory(s3_workspace.repo)
    site = tmp_path / "site.toml"
    site.write_text(SITE.format(url=s3_workspace.site.store.url, endpoint=s3_server.endpoint))
    environ = {**os.environ, **s3_workspace.environ, "GANGLINE_SITE": str(site)}
    command = [sys.executable, "-m", "gangline", "run", "--until", "evaluate"]
    with (tmp_path / "driver.log").open("wb") as log:
        driver = subprocess.Popen(command, cwd=s3_workspace.repo, env=environ, stdout=log, stderr=log)
    try:
        prefix = first_checkpoint(s3_workspace, driver)
    finally:
        driver.kill()
        driver.wait()
    s3_server.kill()
    time.sleep(1.0)
    s3_server.start()
    seen = Remembers()
    record = run_line(s3_workspace.repo, **s3_workspace.where, until="evaluate", observer=seen)
    assert stage(record, "train").state == stage(record, "evaluate").state == "done"
    assert (record.gang.generations, record.gang.restarts) == (1, 0)
    assert list_checkpoints(s3_workspace.store, prefix)[0].step == 600
    assert record.metrics["eval_loss"].value < 1
    assert places_of_the_secret(s3_workspace, s3_server.secret_key) == []
    assert s3_server.secret_key not in (tmp_path / "driver.log").read_text()


def first_checkpoint(workspace, driver):
    """Wait until the run's training has one; the prefix that it lies below."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        for entry in list_all(workspace.store, "runs/"):
            if entry.key.endswith("/checkpoints/latest.json"):
                return entry.key.removesuffix("/latest.json")
        assert driver.poll() is None, "the driver ended before a checkpoint was there"
        time.sleep(0.1)
    raise AssertionError(f"no checkpoint within {DEADLINE_SECONDS:.0f} s")


def rights(trust):
    commit = CommitInfo(sha="c", tree="t", trust=trust)
    return rights_of(Record(run=RunInfo(id="r", project="p", created="now"), commit=commit, inputs=Inputs(line="")))


@pytest.mark.tools
def test_a_forks_gang_gets_its_own_credential_or_none(minio_server, versitygw_server):
    environ = {"S3_KEY": minio_server.credentials}
    site = Site(store=StoreTable(credentials="secret:env:S3_KEY"))
    owner = minio_server.store("forked")
    for key in ("blobs/sha256/code", "models/p/1.json", "runs/p/c/other/record.json"):
        owner.put(key, b"{}")
    mine = minio_server.store("forked", credentials=gang_credentials(owner, site, environ, rights("fork")))
    assert mine.put("runs/p/c/r/gang/checkpoints/latest.json", b"{}")
    assert mine.get("blobs/sha256/code") is not None
    for denied in ("models/p/1.json", "runs/p/c/other/record.json"):
        with pytest.raises(StorageError):
            mine.get(denied)
    environ = {"S3_KEY": versitygw_server.credentials}
    for scoped in (True, False):
        site = Site(store=StoreTable(credentials="secret:env:S3_KEY", scoped=scoped))
        with pytest.raises(IntegrityError, match="no credential of the site"):
            gang_credentials(versitygw_server.store("forked"), site, environ, rights("fork"))


@pytest.mark.tools
def test_a_gang_gets_a_credential_of_its_run_where_the_server_lends_one(minio_server, versitygw_server):
    for server, lends in ((minio_server, True), (versitygw_server, False)):
        for scoped in (True, False):
            site = Site(store=StoreTable(credentials="secret:env:S3_KEY", scoped=scoped))
            given = gang_credentials(server.store("lent"), site, {"S3_KEY": server.credentials}, rights("own"))
            assert (given != server.credentials) == (lends and scoped)
            mine = server.store("lent", credentials=given)
            assert mine.put("runs/p/c/r/gang/checkpoints/latest.json", b"{}")
            assert mine.get("runs/p/c/other/checkpoints/latest.json") is None
            assert mine.list("runs/p/") != []
            if lends and scoped:
                for hidden in ("blobs/", "models/", "open/"):
                    with pytest.raises(StorageError, match="AccessDenied"):
                        mine.list(hidden)
                with pytest.raises(StorageError, match="AccessDenied"):
                    mine.get("models/p/1.json")


def test_an_endpoint_where_no_one_answers_is_named_and_soon(workspace, monkeypatch):
    monkeypatch.setattr(site_paths, "CONNECT_SECONDS", 0.5)
    endpoint = f"http://127.0.0.1:{free_port()}"
    workspace.site = Site(store=StoreTable(url="s3://bucket", endpoint=endpoint, credentials="secret:env:S3_KEY"))
    workspace.environ["S3_KEY"] = "key:secret-word"
    began = time.monotonic()
    with pytest.raises(StorageError, match=f"{endpoint}.*gangline store doctor") as caught:
        workspace.run()
    assert time.monotonic() - began < 10
    assert "secret-word" not in str(caught.value)
