"""Runs that are mirrored while real gangs train: one run in the tracker, whoever was killed; no run suffers."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.line import repositories
from tests.line.conftest import Remembers
from tests.trackers import drive_mirrored
from tests.trackers.events import operations
from tests.trackers.fake_tracker import FakeTracker

from gangline.cli.commands.track import _push
from gangline.cli.workspace import Workspace
from gangline.line.record.runs import list_runs
from gangline.line.stages.run_line import run_line
from gangline.spec.config.site import Site
from gangline.spec.run_flags import SEARCH, search_of
from gangline.storage.folder.store import FolderStore
from gangline.trackers.stored_run import stored_events

PROGRAM = Path(drive_mirrored.__file__)
ROOT = PROGRAM.parents[2]


def the_run(folder):
    store = FolderStore(folder / "repo" / ".gangline" / "store")
    (record,) = list_runs(store)
    return store, record


def wanted(folder):
    """What `track push` would send: all that a tracker should have."""
    store, record = the_run(folder)
    return operations(record, stored_events(store, record))


def points(made):
    return sorted((point.metric, point.step, point.time_ms, point.value) for point in made.points)


def drive(folder):
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, str(PROGRAM), str(folder)], env=environ, capture_output=True, check=False)


def test_a_run_is_mirrored_as_push_would_write_it(tmp_path):
    repo, tracker = drive_mirrored.prepare(tmp_path), FakeTracker(tmp_path / "tracker")
    where = drive_mirrored.where(tmp_path)
    record = run_line(repo, **where | {"environ": {**where["environ"], SEARCH: "s-9f31c2a0-m4k7"}})
    made = wanted(tmp_path)
    assert tracker.history() == points(made)
    assert {name for name, *_ in tracker.sent()} == {"loss", "step_seconds", "final/loss", "final/step_seconds"} & {
        point.metric for point in made.points
    }
    assert tracker.names()[-2:] == ["finish", "close"]
    finished = tracker.calls()[-2][1]
    assert (finished["status"], finished["id"], finished["group"]) == ("finished", record.run.id, "s-9f31c2a0-m4k7")
    assert finished["parameters"] == made.run.parameters
    assert search_of(the_run(tmp_path)[1]) == "s-9f31c2a0-m4k7"


@pytest.mark.row("TB2")
@pytest.mark.parametrize("way", ["refuses", pytest.param("hangs", marks=pytest.mark.long)])
def test_trackers_that_fail_cost_an_event_each_and_no_verdict(tmp_path, way):
    """One refuses or hangs, one has no token, one that the line names is of another site, one is left out."""
    line = repositories.LINE.replace("[train]", 'track = ["ours", "closed", "theirs"]\n[train]')
    repo, tracker = drive_mirrored.prepare(tmp_path, line=line), FakeTracker(tmp_path / "tracker")
    left_out = FakeTracker.at(tmp_path / "left-out")
    tracker.goes(way)
    tables = {
        "ours": tracker.table, "closed": replace(tracker.table, token="secret:env:NOT_THERE"),
        "others": left_out.table,
    }  # fmt: skip
    seen = Remembers()
    where = drive_mirrored.where(tmp_path) | {"site": Site(track=tables)}
    record = run_line(repo, **where, observer=seen)
    assert (record.run.verdict, record.run.exit_code) == ("passed", 0)
    closed, ours = sorted(event.text for event in the_run(tmp_path)[1].events if event.kind == "tracker")
    assert ours.startswith("ours does not have all of this run: ")
    assert closed.startswith("closed gets nothing of this run: secret:env:NOT_THERE: wanted a secret, found nothing")
    assert seen.notes.count("project.track: this site has no tracker theirs; it has ours, closed, others") == 1
    assert left_out.pids() == []


@pytest.mark.row("TB1")
@pytest.mark.parametrize(
    "call", [pytest.param(number, marks=pytest.mark.long) if number not in (2,) else number for number in range(1, 6)]
)
def test_a_driver_that_is_killed_after_a_call_leaves_one_run_with_equal_history(tmp_path, call):
    """Calls are open, begin, write, and after the end write, finish, close; two kills leave three drivers.

    A driver that dies once the record has its end has no successor: `gangline track push` writes the end then.
    """
    drive_mirrored.prepare(tmp_path)
    tracker = FakeTracker(tmp_path / "tracker")
    tracker.kills_after(call, call + 2)
    codes = [drive(tmp_path).returncode for _ in range(3)]
    assert codes[0] == -9
    assert codes[-1] == 0
    if "finish" not in tracker.names():
        (tracker.folder / "deadly").unlink()
        where = drive_mirrored.where(tmp_path)
        _push(Workspace(tmp_path / "repo", where["site"], where["environ"]), the_run(tmp_path)[1], "ours")
    assert tracker.history() == points(wanted(tmp_path))
    assert {content["id"] for name, content in tracker.calls() if name in ("begin", "finish")} == {
        the_run(tmp_path)[1].run.id
    }
    assert "finish" in tracker.names()
