"""Looking in on a gang: for a while as its driver, for a moment as anybody; the gang goes on."""

import json
import time

import pytest
from tests.line import repositories

from gangline.errors import StillRunning
from gangline.launch.local.folder import GangFolder
from gangline.line.run import watch
from gangline.line.run.cancel import cancel_run
from gangline.line.run.lease import is_held, read_lease
from gangline.line.run.watch import read_progress
from gangline.report.run.terminal import one_line
from gangline.spec.run_flags import stage


@pytest.fixture
def submitted(workspace):
    repositories.commit(workspace.repo, {"answer.py": repositories.LONG_PROGRAM})
    run = workspace.run(until="submit").run.id
    yield workspace, run
    cancel_run(workspace.repo, run, **workspace.where, reason="the test is over", save=False)


def test_a_driver_whose_time_is_up_leaves_gang_and_run_and_is_let_in_again(submitted):
    workspace, run = submitted
    began = time.monotonic()
    for _ in range(2):
        with pytest.raises(StillRunning, match="is still running; call again"):
            workspace.stage("train", run, max_seconds=0.5, follow_seconds=0.5)
    assert time.monotonic() - began < 20
    record = workspace.record(run)
    assert record.run.state == "open"
    assert stage(record, "train").state == "running"
    assert not is_held(read_lease(workspace.store, record.prefix), now=time.time())
    assert len(list((workspace.repo / ".gangline" / "gangs").iterdir())) == 1


def test_a_driver_with_time_enough_sees_the_end(workspace):
    run = workspace.run(until="submit").run.id
    assert stage(workspace.stage("train", run, follow_seconds=60.0), "train").state == "done"


def test_one_line_of_an_open_run_says_what_it_does(submitted):
    workspace, run = submitted
    with pytest.raises(StillRunning):
        workspace.stage("train", run, follow_seconds=1.0)
    deadline = time.monotonic() + 60  # a busy machine starts a rank late
    while True:
        progress = read_progress(workspace.repo, workspace.record(run), **workspace.where)
        if "started" in progress.sentence():
            break
        assert time.monotonic() < deadline, progress.sentence()
    assert progress.stage == "train"
    events = GangFolder(workspace.repo / ".gangline" / "gangs" / run).rank_events(0)
    step = {"event": "step", "rank": 0, "step": 2, "loss": 2.71, "seconds": 7.0, "tokens": 70, "time": time.time()}
    events.parent.mkdir(parents=True, exist_ok=True)
    events.write_text("".join(json.dumps(step | {"step": number}) + "\n" for number in range(3)))
    progress = read_progress(workspace.repo, workspace.record(run), **workspace.where, seconds=2.0)
    said = progress.sentence()
    assert "2/4 loss 2.71" in said
    assert "ETA 14 s" in said
    assert progress.ends_in_seconds == 14.0
    assert one_line(workspace.record(run), doing=f"train {said}").startswith(f"open · {run} · train 1 process 2/4")


def test_a_run_without_a_gang_is_at_its_next_stage(workspace):
    record = workspace.run(until="plan")
    assert read_progress(workspace.repo, record, **workspace.where) is None
    assert one_line(record) == f"open · {record.run.id} · submit"


def test_a_glance_ends_though_the_gang_is_silent():
    def silent():
        time.sleep(60)
        yield

    began = time.monotonic()
    assert list(watch._events_so_far(silent(), 0.3)) == []
    assert time.monotonic() - began < 10
