"""Ranks of an approved fork, with the credential that their run lent them, on a real MinIO: what they can write.

They try to make themselves a run of the project, in one process, stage by stage and under the service.
"""

import json
from dataclasses import replace
from secrets import token_hex

import pytest
from tests.line import repositories
from tests.line.conftest import Workspace
from tests.serve.orders.yard import Yard

from gangline.line.request.run_request import CommitOrigin
from gangline.line.request.trust import approve
from gangline.line.results.verification import verify
from gangline.line.run.driver_process import PROGRAM
from gangline.serve.context.home import site_text
from gangline.serve.orders.workers import OrderService
from gangline.spec.config.site import Site, StoreTable
from gangline.spec.record import STAGES
from gangline.spec.run_flags import stage
from gangline.storage.objects.protocol import list_all

pytestmark = [pytest.mark.tools, pytest.mark.row("A2"), pytest.mark.row("P5"), pytest.mark.timeout(240)]
FORK = CommitOrigin(branch="their-idea", pull_request=7, trust="fork")
HOSTILE = (
    repositories.PROGRAM
    + """
from gangline.storage.open import open_store
credentials = pathlib.Path(os.environ["GANGLINE_STORE_CREDENTIALS_FILE"])
socket = os.environ.get("GANGLINE_STORE_SOCKET")
store = open_store(os.environ["GANGLINE_STORE"], credentials=credentials, deadline_seconds=3,
                   socket_folder=pathlib.Path(socket) if socket else None)
gang = json.loads(pathlib.Path(os.environ["GANGLINE_PLAN"]).read_bytes())["run_prefix"]
run = gang.removesuffix("/gang")
project = run.split("/")[1]
record = {"schema": 2, "run": {"id": run.split("/")[3], "project": project, "created": "now"},
          "commit": {"sha": run.split("/")[2], "tree": "a" * 40, "trust": "own", "branch": "main", "protected": True},
          "inputs": {"line": "b" * 64}}
wanted = {
    f"{run}/record.json": json.dumps(record),
    f"{run}/lease.json": json.dumps({"holder": "", "token": 99, "expires": 0}),
    f"{run}/model/model.safetensors": "x", f"{run}/model/1-1-aaaa/model.sig": "x", f"{run}/plan.json": "{}",
    f"{run}/report.html": "<h1>fine</h1>", f"{run}x/record.json": "{}", f"{run}/gangs/x": "x",
    f"open/{project}/{run.split('/')[3]}": "x", f"models/{project}/1.json": "{}",
    f"models/{project}/project.json": "{}", f"models/{project}/aliases/production.json": "{}",
    "blobs/sha256/" + "0" * 64: "x", f"runs/{project}/other": "x", "runs/other/x/y/record.json": "{}",
}
done = []
def attempt(name, call):
    try:
        done.append([name, call() is not None])
    except Exception:
        done.append([name, False])
for key, text in wanted.items():
    attempt("put " + key, lambda: store.put(key, text.encode()))
    attempt("delete " + key, lambda: [store.delete(key)])
    attempt("new " + key, lambda: store.put_if_absent(key, text.encode()))
attempt("read record", lambda: store.get(f"{run}/record.json"))
attempt("list all", lambda: store.list(""))
attempt("list runs", lambda: store.list("runs/"))
attempt("list blobs", lambda: store.list("blobs/"))
attempt("own put", lambda: store.put(f"{gang}/mine", b"x"))
(out / "done.json").write_text(json.dumps(done))
"""
)


@pytest.fixture
def s3(minio_server):
    """A prefix of its own: its part of a site, and the variable of its credential."""
    table = StoreTable(
        url=f"s3://{minio_server.bucket}/{token_hex(4)}", endpoint=minio_server.endpoint,
        credentials="secret:env:S3_KEY",
    )  # fmt: skip
    return table, {"S3_KEY": minio_server.credentials}


@pytest.fixture
def fork(s3, tmp_path):
    """A workspace on that store, whose HEAD is hostile."""
    table, variables = s3
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"), **variables}
    workspace = Workspace(repositories.make_repository(tmp_path / "repo"), Site(store=table), environ)
    repositories.commit(workspace.repo, {"answer.py": HOSTILE})
    return workspace


def demand_harmless(store, record):
    """What the ranks wrote lies below their prefix, and the run is the fork's."""
    reported = json.loads(store.get(f"{record.gang_prefix}/done.json").data)
    assert [name for name, done in reported if done] == ["own put"]
    assert len(reported) > 40
    assert (record.commit.trust, record.commit.protected, record.run.verdict) == ("fork", False, "passed")
    assert stage(record, "publish").state == "skipped"
    assert not list(list_all(store, "models/"))


def test_in_one_process(fork):
    fork.run(origin=FORK, until="plan")
    approve(fork.store, fork.records()[0], who="maintainer", sealer=fork.sealer)
    record = fork.run(origin=FORK)
    demand_harmless(fork.store, record)
    found = verify(record.run.id, store=fork.store, repo=fork.repo, **fork.where)
    assert [each.name for each in found if not each.ok] == []


def test_stage_by_stage(fork):
    run = fork.run(origin=FORK, until="plan").run.id
    approve(fork.store, fork.records()[0], who="maintainer", sealer=fork.sealer)
    for name in STAGES[STAGES.index("submit") :]:
        fork.stage(name, run)
    demand_harmless(fork.store, fork.record(run))


def test_under_the_service(s3, tmp_path):
    table, variables = s3
    yard = Yard(tmp_path, forge=True)
    try:
        sha = yard.push(branch="stranger", files={"answer.py": HOSTILE})
        repositories.git(yard.repo, "update-ref", "refs/pull/7/head", sha)
        yard.forge.forks.add(7)
        site = replace(yard.context.site, store=table)
        workspace = Workspace(yard.repo, site, {**yard.context.environ, **variables})
        yard.context = replace(yard.context, site=site, store=workspace.store, environ=workspace.environ)
        (tmp_path / "site.toml").write_text(site_text(site))
        service = OrderService(yard.context, program=PROGRAM)
        service.workers.start()
        order = yard.order(ref="refs/pull/7/head", branch="pull-7", pull_request=7, cause="pull_request")
        parked = yard.wait(order, "parked")
        approve(workspace.store, workspace.record(parked.run), who="maintainer", sealer=workspace.sealer)
        yard.context.database.orders.unpark(parked.run, now=0)
        yard.wait(order)
        service.close()
        assert [each.run.id for each in workspace.records()] == [parked.run]
        demand_harmless(workspace.store, workspace.record(parked.run))
    finally:
        yard.close()
