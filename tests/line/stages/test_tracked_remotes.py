"""Runs of a repository whose data a real DVC tracks, from each kind of remote on a server of its own."""

import shutil
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler

import pytest
from tests.data.recorded import FILES, RECORDINGS, dvc_repository
from tests.line import repositories
from tests.line.stages.test_tracked_files import KEYS, READER, line_with
from tests.loopback import listening

from gangline.errors import ConfigError, IntegrityError, StorageError
from gangline.line.stages.preview import preview
from gangline.line.stages.run_line import run_line
from gangline.spec.codec import from_json
from gangline.spec.config.site_tables import SourceTable
from gangline.spec.data_source import DataSource
from gangline.spec.run_flags import stage

REMOTE = RECORDINGS / "v3" / "remote"
OBJECTS = {str(path.relative_to(REMOTE)): path.read_bytes() for path in REMOTE.rglob("*") if path.is_file()}
TRAIN = "files/md5/c7/11e0c82f0a91970d24348b315d6ce0"


class Remote:
    """Where objects are, under which URL, and how one is replaced."""

    def __init__(self, table, put, *, url=None, environ=()):
        self.table, self.put, self.url, self.environ = table, put, url or table.url, dict(environ)


@contextmanager
def web_server(folder):
    """A web server of this folder; yields its URL."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    with listening(partial(Handler, directory=str(folder))) as url:
        yield f"{url}/dvc"


SERVERS = ["web", *(pytest.param(name, marks=pytest.mark.tools) for name in ("minio", "versitygw", "hdfs"))]


@pytest.fixture(params=SERVERS)
def remote(request, tmp_path):
    name = request.param
    if name == "web":
        shutil.copytree(REMOTE, tmp_path / "www" / "dvc")
        put = lambda path, data: (tmp_path / "www" / "dvc" / path).write_bytes(data)  # noqa: E731
        with web_server(tmp_path / "www") as url:
            yield Remote(SourceTable(url=url), put)
        return
    if name == "hdfs":
        hdfs = request.getfixturevalue("hdfs")
        table = SourceTable(url=f"{hdfs.url}/{tmp_path.name}", hosts=(hdfs.data_address,))
        made = Remote(table, lambda path, data: hdfs.put(f"{tmp_path.name}/{path}", data))
    else:
        server = request.getfixturevalue(f"{name}_server")
        place = f"s3://{server.bucket}/{tmp_path.name}"
        table = SourceTable(url=f"{place}?endpoint={server.endpoint}", credentials="secret:env:DVC_LOGIN")
        store = server.store(tmp_path.name)
        made = Remote(table, store.put, url=place, environ={"DVC_LOGIN": server.credentials})
    for path, data in OBJECTS.items():
        made.put(path, data)
    yield made


@pytest.fixture
def tracked(workspace, tmp_path, remote):
    """A workspace of such a repository, whose `.dvc/config` names the remote as DVC would."""
    workspace.repo = dvc_repository(tmp_path / "dvc", "v3", line=line_with(KEYS), remote=remote.url)
    repositories.commit(workspace.repo, {"answer.py": READER})
    workspace.site = replace(workspace.site, source={"dvc": remote.table})
    workspace.environ |= remote.environ
    return workspace


def test_a_program_finds_every_file_of_a_remote(tracked):
    record = tracked.run()
    assert record.metrics["rows"].value == 3
    data = from_json(DataSource, tracked.store.get(str(stage(record, "build").outputs["data"])).data)
    assert {each.path: tracked.store.get(each.key).data for each in data.tracked} == FILES


def test_another_file_at_a_remote_ends_the_run_with_both_digests(tracked, remote):
    remote.put(TRAIN, b"other")
    with pytest.raises(IntegrityError, match=r"data/train\.csv: wanted md5 c711e0c82f0a91970d2.* found md5"):
        tracked.run()


TASK_LINE = """\
[project]
name = "rows"
task = "model:Rows"
[model]
width = 4
[optimizer.elementwise]
rule = "adamw"
lr = 0.01
[train]
steps = 3
global_batch = 2
[publish]
model = "rows"
"""
TASK = """\
from pathlib import Path

import torch
from torch import nn

from gangline.train import Loss

ROWS = [line.split(",") for line in Path("data/train.csv").read_text().split()[1:]]


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one, self.two = nn.Linear(1, width), nn.Linear(width, 1)

    def forward(self, x):
        return self.two(self.one(x))


class Rows:
    def build_model(self, options):
        return Net(options["width"] if Path("data/images/deep/labels.txt").exists() else None)

    def build_data(self, split, options):
        return [{"x": torch.tensor([float(x)]), "y": torch.tensor([float(y)])} for x, y in ROWS]

    def loss(self, outputs, batch):
        return Loss(total=((outputs - batch["y"]) ** 2).sum(), weight=len(outputs))
"""


@pytest.mark.timeout(600)
@pytest.mark.long
@pytest.mark.parametrize("remote", ["web"], indirect=True)
def test_a_task_finds_its_files_where_it_is_inspected_and_in_its_smoke_test(tracked, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    repositories.commit(tracked.repo, {"model.py": TASK, "line.toml": TASK_LINE})
    with pytest.raises(ConfigError, match=r"DVC or Git LFS tracks data/train\.csv: gangline plan does not fetch it"):
        preview(tracked.repo, **tracked.where)
    record = run_line(tracked.repo, **tracked.where, observer=tracked.seen)
    assert record.run.verdict == "passed", record.run
    assert "answers in a fresh process" in stage(record, "publish").message


@pytest.mark.tools
@pytest.mark.parametrize("remote", ["minio", "versitygw"], indirect=True)
def test_a_bucket_that_wants_another_login_is_named(tracked):
    tracked.environ["DVC_LOGIN"] = "someone:else"
    with pytest.raises(
        StorageError, match=r"source\.dvc: .*store\.credentials is source\.dvc\.credentials here"
    ) as caught:
        tracked.run()
    assert caught.value.exit_code == 40
