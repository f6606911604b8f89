"""A repository that is deleted under its run: driver and gang end, and say so where anything is left to say it in."""

import os
import shutil
import signal
import threading
import time
from dataclasses import replace

import pytest
from tests.line import repositories
from tests.line.run.test_stopping import processes_of, until

from gangline.launch.local import LocalLauncher, follower, launcher
from gangline.launch.protocol import GangGone
from gangline.line.gangs import follow as line_follow
from gangline.line.run import lease
from gangline.spec.config.site import Site, StoreTable
from gangline.spec.run_flags import stage


@pytest.fixture
def long_workspace(workspace, monkeypatch):
    for module in (follower, launcher):
        monkeypatch.setattr(module, "GONE_SECONDS", 0.5)
    repositories.commit(workspace.repo, {"answer.py": repositories.LONG_PROGRAM})
    repositories.settle_inventory(workspace.repo)
    yield workspace
    for each in processes_of(None, workspace.repo):
        os.kill(each, signal.SIGKILL)


def drive_until_the_repository_is_gone(workspace):
    """Run id and error of a run whose repository is deleted once its gang runs."""
    ended = []

    def drive():
        try:
            ended.append(workspace.run())
        except Exception as error:
            ended.append(error)

    driver = threading.Thread(target=drive, daemon=True)
    driver.start()
    gangs = workspace.repo / ".gangline" / "gangs"
    began = until(lambda: next(gangs.glob("**/out/began"), None), "the gang runs")
    run = began.relative_to(gangs).parts[0]
    assert processes_of(run, workspace.repo)
    while workspace.repo.exists():  # its uploader may write a file between two looks
        shutil.rmtree(workspace.repo, ignore_errors=True)
    driver.join(60)
    assert ended, "the driver never ended"
    return run, ended[0]


def test_a_run_whose_repository_is_deleted_ends_as_failed_and_its_record_says_why(long_workspace, tmp_path):
    long_workspace.site = Site(store=StoreTable(url=f"file:{tmp_path}/store"))
    run, error = drive_until_the_repository_is_gone(long_workspace)
    assert error.exit_code == 10
    assert "was deleted; check out the commit again" in str(error)
    assert not processes_of(run, long_workspace.repo)
    assert not long_workspace.repo.exists()
    workspace = replace(long_workspace, repo=repositories.make_repository(tmp_path / "elsewhere"))
    record = workspace.record(run)
    assert (record.run.state, record.run.verdict, record.run.exit_code) == ("ended", "failed", 10)
    assert record.run.reason == str(error)
    assert (stage(record, "train").state, stage(record, "report").state) == ("failed", "done")
    assert not lease.is_held(lease.read_lease(workspace.store, record.prefix), now=time.time())


def test_a_driver_whose_store_went_with_the_repository_ends_with_the_same_sentence(long_workspace):
    run, error = drive_until_the_repository_is_gone(long_workspace)
    assert isinstance(error, GangGone)
    assert f"gang {run} has ended" in str(error)
    assert not processes_of(run, long_workspace.repo)
    assert not long_workspace.repo.exists()


def late(work, repo):
    """`work`, begun once the repository is gone."""

    def wait_and_work(*arguments):
        until(lambda: not repo.exists(), "the repository is gone")
        return work(*arguments)

    return wait_and_work


def submit_and_wait(submit, repo):
    """`submit`, whose answer comes once the repository is gone."""

    def submit_then_wait(self, podset):
        gang = submit(self, podset)
        until(lambda: not repo.exists(), "the repository is gone")
        return gang

    return submit_then_wait


@pytest.mark.parametrize("moment", ["before its gang is written down", "before its start is written down"])
def test_a_driver_whose_store_fails_first_leaves_no_gang_behind(long_workspace, monkeypatch, moment):
    """A store that went is met before the missing folder of the gang: at the next word of the record."""
    if moment == "before its gang is written down":
        monkeypatch.setattr(LocalLauncher, "submit", submit_and_wait(LocalLauncher.submit, long_workspace.repo))
    else:
        monkeypatch.setattr(line_follow, "_record_start", late(line_follow._record_start, long_workspace.repo))
    run, error = drive_until_the_repository_is_gone(long_workspace)
    assert isinstance(error, GangGone)
    assert f"gang {run} has ended" in str(error)
    assert not processes_of(run, long_workspace.repo)
    assert not long_workspace.repo.exists()
