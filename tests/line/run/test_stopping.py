"""Stopping a run, racing for one, and cleaning up after one; real gangs, no process left behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.line import repositories
from tests.line.conftest import Remembers

from gangline.errors import CancelledError, CapacityError, ConfigError, TrainingError, UsageError
from gangline.launch.local import LocalLauncher
from gangline.launch.local.folder import GangFolder
from gangline.launch.protocol import GangEvent
from gangline.line.gangs.follow import Interrupted
from gangline.line.record import runs
from gangline.line.record.store import RecordStore
from gangline.line.run import lease
from gangline.line.run.cancel import cancel_run
from gangline.line.run.sweep import life_of, sweep
from gangline.line.run.watch import follow_run
from gangline.report.run.terminal import page
from gangline.spec.config.site import LimitsTable, Site
from gangline.spec.record import STOPPED
from gangline.spec.run_flags import stage

DEADLINE_SECONDS = 60.0
DRIVER = """
import sys
from pathlib import Path
from gangline.line.stages.run_line import run_line
from gangline.spec.config.site import Site
run_line(Path(sys.argv[1]), site=Site(), environ={"HOME": sys.argv[2], "XDG_CONFIG_HOME": sys.argv[2] + "/config"})
"""


def until(holds, what):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (found := holds()):
        assert time.monotonic() < deadline, f"{what}: not within {DEADLINE_SECONDS:.0f} s"
        time.sleep(0.05)
    return found


def processes_of(run, repo=None):
    """Process ids whose environment names a gang of `run`, or of any, in `repo`, or in any: ids of runs repeat."""
    marks = [f"GANGLINE_RUN={run}\0".encode()] if run else []
    marks += [f"GANGLINE_HOME={repo}/".encode()] if repo else []
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue
        if all(mark in environment for mark in marks) and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return found


def has_begun(repo, run):
    return (GangFolder(repo / ".gangline" / "gangs" / run).inside / "out" / "began").exists()


@pytest.fixture
def long_workspace(workspace):
    """A line whose program never ends by itself."""
    repositories.commit(workspace.repo, {"answer.py": repositories.LONG_PROGRAM})
    repositories.settle_inventory(workspace.repo)
    return workspace


@pytest.fixture
def driver(long_workspace, tmp_path):
    """A driver in a process of its own, whose gang runs; killed at the end, with whatever it started."""
    command = [sys.executable, "-c", DRIVER, str(long_workspace.repo), str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    run = until(lambda: next(iter(long_workspace.records()), None), "a record").run.id
    until(lambda: has_begun(long_workspace.repo, run), "the gang runs")
    yield process, run
    process.kill()
    process.wait()
    process.stdout.close()
    cancel_run(long_workspace.repo, run, **long_workspace.where, reason="test is over", save=False)
    until(lambda: not processes_of(run, long_workspace.repo), "no process left")


def test_cancel_stops_driver_and_gang_and_leaves_nothing(long_workspace, driver):
    process, run = driver
    record = cancel_run(long_workspace.repo, run, **long_workspace.where, reason="enough")
    assert (record.run.verdict, record.run.exit_code) == ("cancelled", 70)
    assert record.run.reason == f"{run} was stopped: enough; what its program saved is not known"
    assert process.wait(DEADLINE_SECONDS) != 0
    until(lambda: not processes_of(run, long_workspace.repo), "no process left")
    again = cancel_run(long_workspace.repo, run, **long_workspace.where, reason="once more")
    assert again.run.reason == record.run.reason
    assert stage(long_workspace.record(run), "train").state == "cancelled"
    assert not list(runs.open_runs(long_workspace.store))


def test_cancel_ends_a_run_that_no_one_drives_and_its_gang(long_workspace, driver):
    process, run = driver
    process.kill()
    process.wait()
    assert processes_of(run, long_workspace.repo)
    record = cancel_run(long_workspace.repo, run, **long_workspace.where, reason="driver died")
    assert (record.run.verdict, record.run.reason) == ("cancelled", "driver died; what its program saved is not known")
    until(lambda: not processes_of(run, long_workspace.repo), "no process left")


def test_a_driver_that_is_not_let_near_its_gang_leaves_the_run_open_and_the_gang_alone(workspace, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(LocalLauncher, "follow", _refused)
        with pytest.raises(
            ConfigError, match="is still running but cannot be reached: sign in again; fix this, then gangline run"
        ):
            workspace.run()
    (left,) = workspace.records()
    assert (left.run.state, stage(left, "train").state) == ("open", "running")
    ended = workspace.run()
    assert (ended.run.id, ended.run.verdict) == (left.run.id, "passed")
    assert ended.gang.uid == left.gang.uid, "the same gang, not a second one"


def _refused(*_, **__):
    raise ConfigError("sign in again")


def test_a_second_driver_is_sent_to_follow(long_workspace, driver):
    _, run = driver
    with pytest.raises(CapacityError, match=f"gangline follow {run}"):
        long_workspace.run()
    assert long_workspace.record(run).run.state == "open"


def test_a_driver_that_was_killed_is_replaced_and_its_gang_adopted(long_workspace, driver):
    process, run = driver
    before = processes_of(run, long_workspace.repo)
    process.kill()
    process.wait()
    taken = threading.Thread(target=swallow, args=(CancelledError, long_workspace.run))
    taken.start()
    until(lambda: long_workspace.record(run).run.driver.token == 2, "the second driver writes")
    assert set(processes_of(run, long_workspace.repo)) <= set(before)
    cancel_run(long_workspace.repo, run, **long_workspace.where, reason="enough")
    taken.join(DEADLINE_SECONDS)
    assert not taken.is_alive()
    assert long_workspace.record(run).run.verdict == "cancelled"


def test_ctrl_c_stops_the_gang_and_leaves_the_run_to_be_resumed(long_workspace, driver):
    process, run = driver
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=DEADLINE_SECONDS)
    assert b"gangline run resumes" in output
    until(lambda: not processes_of(run, long_workspace.repo), "no process left")
    record = long_workspace.record(run)
    assert record.run.state == "open"
    said = "stopped by Ctrl-C; what its program saved is not known"
    assert said.encode() in output
    assert [event.text for event in record.events if event.kind == STOPPED] == [said]
    assert said in page(record)
    assert not lease.is_held(lease.read_lease(long_workspace.store, record.prefix), now=time.time())


LEAVES_WITH_0 = """\
import os, pathlib, signal, sys, time
if not os.environ["GANGLINE_GANG"].endswith("-t2"):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    pathlib.Path(os.environ["GANGLINE_OUT"], "began").touch()
    while True:
        time.sleep(0.05)
"""


def test_a_program_that_answers_ctrl_c_with_0_is_resumed_and_has_not_passed(workspace, monkeypatch):
    repositories.commit(workspace.repo, {"answer.py": LEAVES_WITH_0 + repositories.PROGRAM})
    with monkeypatch.context() as patched:
        patched.setattr(LocalLauncher, "follow", lambda _, name: interrupted(workspace.repo, name))
        with pytest.raises(Interrupted, match="what its program saved is not known"):
            workspace.run()
    (left,) = workspace.records()
    assert (left.run.state, stage(left, "train").state) == ("open", "running")
    assert "stopped by Ctrl-C; what its program saved is not known" in page(left)
    ended = workspace.run()
    assert (ended.run.id, ended.run.verdict, ended.gang.restarts) == (left.run.id, "passed", 1)
    assert ended.gang.name == f"{left.run.id}-t2"
    assert any("rank 0 left with code 0 and did not report the last step" in event.text for event in ended.events)
    assert "stopped by Ctrl-C" not in page(ended), "what a stop saved is told while it counts"


def interrupted(repo, gang):
    until(lambda: has_begun(repo, gang), "the gang runs")
    yield GangEvent(kind="note", text="the next one is never asked for")
    raise KeyboardInterrupt


def test_deadline_of_the_line_ends_a_training_and_is_named(workspace):
    line = repositories.LINE + "[plan]\ndeadline_seconds = 1.5\n"
    repositories.commit(workspace.repo, {"answer.py": repositories.LONG_PROGRAM, "line.toml": line})
    bounded = replace(workspace, site=Site(limits=LimitsTable(run_seconds=20.0)))
    with pytest.raises(TrainingError, match=r"deadline of 1\.5 s exceeded; raise plan\.deadline_seconds; "):
        bounded.run()
    (record,) = workspace.records()
    assert (record.run.verdict, record.run.exit_code) == ("failed", 30)


def test_gate_budget_judges_the_time_that_a_training_took(workspace):
    line = repositories.LINE + "[plan]\ndeadline_seconds = 500\n"
    repositories.commit(workspace.repo, {"line.toml": line})
    (gate,) = [each for each in workspace.run().gates if each.name == "budget"]
    assert gate.verdict == "yes"
    assert "measured, within 8 min 20 s" in gate.reason


def test_sigterm_leaves_the_gang_running(long_workspace, driver):
    process, run = driver
    process.terminate()
    process.wait(DEADLINE_SECONDS)
    time.sleep(0.5)
    assert processes_of(run, long_workspace.repo)
    assert long_workspace.record(run).run.state == "open"


def test_a_newer_commit_of_a_branch_supersedes_an_open_run(workspace):
    repositories.git(workspace.repo, "checkout", "--quiet", "-b", "topic")
    older = workspace.run(until="plan")
    repositories.commit(workspace.repo, {"answer.py": repositories.PROGRAM + "# newer\n"})
    newer = workspace.run()
    ended = workspace.record(older.run.id)
    assert (ended.run.verdict, ended.run.exit_code) == ("superseded", 70)
    assert newer.run.id in ended.run.reason
    assert newer.run.verdict == "passed"


def test_a_newer_commit_stops_a_gang_that_trains(long_workspace, tmp_path):
    repositories.git(long_workspace.repo, "checkout", "--quiet", "-b", "topic")
    command = [sys.executable, "-c", DRIVER, str(long_workspace.repo), str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        run = until(lambda: next(iter(long_workspace.records()), None), "a record").run.id
        until(lambda: has_begun(long_workspace.repo, run), "the gang runs")
        repositories.commit(long_workspace.repo, {"answer.py": repositories.PROGRAM})
        newer = long_workspace.run()
        assert process.wait(DEADLINE_SECONDS) != 0
        assert long_workspace.record(run).run.verdict == "superseded"
        assert newer.run.verdict == "passed"
        until(lambda: not processes_of(run, long_workspace.repo), "no process left")
    finally:
        process.kill()
        process.wait()


def test_on_a_branch_that_publishes_every_commit_runs_to_its_end(workspace):
    older = workspace.run(until="plan")
    repositories.commit(workspace.repo, {"answer.py": repositories.PROGRAM + "# newer\n"})
    workspace.run()
    assert workspace.record(older.run.id).run.state == "open"


def test_other_branches_are_left_alone(workspace):
    repositories.git(workspace.repo, "checkout", "--quiet", "-b", "one")
    older = workspace.run(until="plan")
    repositories.git(workspace.repo, "checkout", "--quiet", "-b", "two")
    repositories.commit(workspace.repo, {"answer.py": repositories.PROGRAM + "# newer\n"})
    workspace.run(until="plan")
    assert workspace.record(older.run.id).run.state == "open"


def test_sweep_deletes_gangs_of_ended_runs_and_of_orphans_alone(long_workspace, driver):
    process, run = driver
    asked = {**long_workspace.where}
    assert [(each.life, each.deleted) for each in sweep(long_workspace.repo, **asked)] in ([], [("followed", False)])
    process.kill()
    process.wait()
    assert processes_of(run, long_workspace.repo)
    prefix = long_workspace.record(run).prefix
    held = lease.read_lease(long_workspace.store, prefix)
    from gangline.spec.codec import canonical

    long_workspace.store.put(f"{prefix}/lease.json", canonical(replace(held, expires=time.time() - 1e6)))
    dry = sweep(long_workspace.repo, **asked, dry_run=True)
    assert all(not each.deleted for each in dry)
    assert processes_of(run, long_workspace.repo)
    (swept,) = sweep(long_workspace.repo, **asked)
    assert (swept.run, swept.life, swept.deleted) == (run, "orphan", True)
    until(lambda: not processes_of(run, long_workspace.repo), "no process left")


def test_a_run_that_was_left_on_purpose_is_not_an_orphan_before_its_time(long_workspace):
    run = long_workspace.run(until="submit").run.id
    until(lambda: processes_of(run, long_workspace.repo), "the gang runs")
    (stays,) = sweep(long_workspace.repo, **long_workspace.where)
    assert (stays.life, stays.deleted) == ("followed", False)
    assert processes_of(run, long_workspace.repo)
    assert life_of(long_workspace.store, run, orphan_seconds=3000, now=time.time() + 3600) == "orphan"
    cancel_run(long_workspace.repo, run, **long_workspace.where, reason="test is over", save=False)
    until(lambda: not processes_of(run, long_workspace.repo), "no process left")


def test_a_bystander_sees_stages_and_the_end(workspace):
    record = workspace.run()
    seen = Remembers()
    assert follow_run(workspace.repo, record.run.id, **workspace.where, observer=seen) == record
    assert seen.stages[0] == "resolve"
    assert seen.stages[-1] == "report"


def test_a_bystander_of_a_run_without_driver_is_informed(workspace):
    record = workspace.run(until="plan")
    seen = Remembers()
    follow_run(workspace.repo, record.run.id[:10], **workspace.where, observer=seen)
    assert any("has no driver" in note for note in seen.notes)


def test_a_run_is_found_by_its_beginning_unless_two_share_it(workspace):
    first = workspace.run(until="resolve")
    second = workspace.run(until="resolve", overrides=["train.seed=2"])
    store = workspace.store
    assert runs.find_run(store, first.run.id).run.id == first.run.id
    common = first.run.id[:14]
    with pytest.raises(UsageError, match="found 2"):
        runs.find_run(store, common)
    with pytest.raises(UsageError, match="no run"):
        runs.find_run(store, "nothing")
    assert {each.run.id for each in runs.list_runs(store)} == {first.run.id, second.run.id}
    assert {each.run.id for each in runs.open_runs(store, "cheap")} == {first.run.id, second.run.id}


def test_a_marker_without_open_run_is_removed_on_the_way(workspace):
    record = workspace.run()
    runs.mark_open(workspace.store, record)
    assert list(runs.open_runs(workspace.store)) == []
    assert workspace.store.get(f"open/cheap/{record.run.id}") is None


def test_an_older_driver_stops_at_its_next_write(workspace):
    record = workspace.run(until="plan")
    records = RecordStore.of(workspace.store, record, workspace.sealer)
    young = replace(record.run.driver, holder="young", token=9)
    records.change(lambda each: replace(each, links={"x": "y"}), driver=young)
    with pytest.raises(CapacityError, match="young"):
        records.change(lambda each: replace(each, links={}), driver=record.run.driver)


def swallow(error, function):
    try:
        function()
    except error:
        return
