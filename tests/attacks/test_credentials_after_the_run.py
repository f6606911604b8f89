"""I4, A2: 60 s after its run has ended a gang's credential does nothing any more, however the run ended."""

import time
from secrets import token_hex

import pytest
from tests.line import repositories
from tests.line.conftest import Workspace

from gangline.errors import StorageError
from gangline.line.gangs.launchers import gang_credentials
from gangline.line.record import states
from gangline.line.request.trust import rights_of
from gangline.line.run.cancel import cancel_run
from gangline.line.run.sweep import sweep
from gangline.spec.config.site import Site, StoreTable
from gangline.storage.s3 import minio_accounts
from gangline.storage.s3.run_credentials import credential_owners

pytestmark = [pytest.mark.row("A2"), pytest.mark.tools]
TELLS_ITS_CREDENTIAL = (
    repositories.PROGRAM
    + """
told = pathlib.Path(os.environ["GANGLINE_STORE_CREDENTIALS_FILE"]).read_text()
pathlib.Path(os.environ["GANGLINE_OUT"], "stolen").write_text(told)
"""
)
SECONDS = 60.0


@pytest.fixture
def at(tmp_path):
    """A workspace whose site keeps everything on this server."""

    def make(server, **options):
        url = f"s3://{server.bucket}/{token_hex(4)}"
        table = StoreTable(url=url, endpoint=server.endpoint, credentials="secret:env:S3_KEY", **options)
        environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"), "S3_KEY": server.credentials}
        return Workspace(repositories.make_repository(tmp_path / "repo"), Site(store=table), environ)

    return make


def stolen(workspace, server, program=TELLS_ITS_CREDENTIAL):
    """The store as a rank of the run that this drives opens it, by what it read in its own file."""
    repositories.commit(workspace.repo, {"answer.py": program})
    record = workspace.run()
    (file,) = workspace.repo.glob(".gangline/gangs/*/**/out/stolen")
    prefix = workspace.site.store.url.removeprefix(f"s3://{server.bucket}/")
    return record, server.store(prefix, credentials=file.read_text())


def test_what_a_rank_kept_of_its_credential_is_dead_when_its_run_has_ended(at, minio_server):
    workspace = at(minio_server)
    record, thief = stolen(workspace, minio_server)
    ended = time.monotonic()
    assert record.run.verdict == "passed"
    refused = [
        lambda: thief.put(f"{record.prefix}/metrics.jsonl", b"forged"),
        lambda: thief.get(f"{record.prefix}/metrics.jsonl"),
        lambda: thief.list(f"{record.prefix}/"),
    ]
    for call in refused:
        with pytest.raises(StorageError, match="InvalidAccessKeyId"):
            call()
    assert time.monotonic() - ended < SECONDS
    assert credential_owners(workspace.store) == frozenset()
    assert not [event for event in record.events if event.kind == "credential"]


def test_it_is_dead_when_its_run_has_failed(at, minio_server):
    workspace = at(minio_server)
    with pytest.raises(Exception, match="answer"):
        stolen(workspace, minio_server, TELLS_ITS_CREDENTIAL + "raise SystemExit('answer')\n")
    (record,) = workspace.records()
    assert record.run.verdict == "failed"
    assert credential_owners(workspace.store) == frozenset()


@pytest.mark.parametrize("lends", ["session", "none"])
def test_a_run_says_once_what_outlives_it(at, minio_server, monkeypatch, lends):
    workspace = at(minio_server, scoped=lends == "session")
    monkeypatch.setattr(minio_accounts, "add", unavailable)
    record, _ = stolen(workspace, minio_server)
    (event,) = [event for event in record.events if event.kind == "credential"]
    assert ("up to 900 s after its end" if lends == "session" else "the site's own") in event.text


def unavailable(*_, **__):
    raise minio_accounts.AccountsUnavailable("the store's key may not handle access keys of its own")


def open_run(workspace):
    """A run that is planned and no more, and a credential that was lent to it."""
    record = workspace.run(until="plan")
    server_store = workspace.store
    gang_credentials(server_store, workspace.site, workspace.environ, rights_of(record))
    assert credential_owners(server_store) == {record.prefix}
    return record


def test_cancelling_a_run_that_no_one_drives_ends_its_credential(at, minio_server):
    workspace = at(minio_server)
    record = open_run(workspace)
    assert cancel_run(workspace.repo, record.run.id, **workspace.where, reason="enough").run.verdict == "cancelled"
    assert credential_owners(workspace.store) == frozenset()


def test_cancelling_again_ends_what_a_driver_left(at, minio_server):
    workspace = at(minio_server)
    record = open_run(workspace)
    end(workspace, record)
    cancel_run(workspace.repo, record.run.id, **workspace.where, reason="enough")
    assert credential_owners(workspace.store) == frozenset()


def test_sweep_ends_what_a_driver_that_died_left_and_nothing_of_a_run_that_continues(at, minio_server):
    workspace = at(minio_server)
    record = open_run(workspace)
    for dry_run in (True, False):
        sweep(workspace.repo, **workspace.where, dry_run=dry_run)
        assert credential_owners(workspace.store) == {record.prefix}
    end(workspace, record)
    sweep(workspace.repo, **workspace.where, dry_run=True)
    assert credential_owners(workspace.store) == {record.prefix}
    sweep(workspace.repo, **workspace.where)
    assert credential_owners(workspace.store) == frozenset()


def end(workspace, record):
    """As a driver does that dies in the next moment."""
    ended = states.end_run(record, "failed", now="2026-01-01T00:00:00Z", reason="died", exit_code=1)
    workspace.store.put(f"{record.prefix}/record.json", ended.to_json())
