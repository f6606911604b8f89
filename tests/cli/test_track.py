"""`gangline track`: what trackers have, and a run that is written again."""

import json

import pytest
from tests.report import records
from tests.trackers.events import operations
from tests.trackers.fake_tracker import FakeTracker

from gangline.cli.commands.track import _state
from gangline.line.run import lease
from gangline.storage.open import open_store
from gangline.trackers.protocol import Mirrored

RUN = records.passed().run.id


@pytest.fixture
def tracker(tmp_path, workspace, monkeypatch):
    """A tracker `ours` of the site of the command line."""
    made = FakeTracker.at(tmp_path / "tracker")
    site = tmp_path / "site.toml"
    site.write_text(
        f'[track.ours]\nkind = "mlflow"\nurl = "http://tracker.example"\npython = "{made.folder / "python"}"\n'
    )
    monkeypatch.setenv("GANGLINE_SITE", str(site))
    return made


def test_push_writes_all_of_a_run_from_its_record(gangline, tracker):
    done = gangline("track", "push", RUN)
    made = operations(records.passed(), [])
    assert done.exit_code == 0
    assert done.output == f"{RUN}  ours: {len(made.points)} points written\n"
    found = sorted((metric, step, value) for metric, step, _, value in tracker.history())
    assert found == sorted((point.metric, point.step, point.value) for point in made.points)
    assert tracker.names() == ["open", "begin", "write", "finish", "close"]


def test_push_of_all_runs_goes_on_after_a_tracker_that_fails(gangline, tracker):
    tracker.goes("fails")
    done = gangline("track", "push", "--all", "--json")
    rows = json.loads(done.output.splitlines()[0])
    assert done.exit_code == 40
    assert [row["written"] for row in rows] == [False, False, False]
    assert rows[0]["text"] == "not written: 503 Service Unavailable"


def test_a_tracker_that_refuses_is_named_with_exit_10(gangline, tracker):
    tracker.goes("refuses")
    for words in (("push", RUN), ("status", RUN)):
        done = gangline("track", *words)
        assert done.exit_code == 10
        assert "ours: not" in done.output
        assert "wanted a token, found another" in done.output


def test_a_run_that_has_a_driver_is_left_to_it(gangline, tracker, workspace):
    store = open_store(f"file:{workspace / '.gangline' / 'store'}")
    lease.acquire_lease(store, records.passed().prefix, holder=lease.this_process(), at_least=1)
    done = gangline("track", "push", RUN)
    assert done.exit_code == 20
    assert f"{RUN} is written by its driver, which works on it now" in str(done.exception)
    assert tracker.pids() == []


def test_a_site_without_trackers_gets_the_table_to_write(gangline):
    done = gangline("track", "status", RUN)
    assert done.exit_code == 10
    assert "found no [track.NAME] in site.toml" in str(done.exception)


def test_a_run_and_all_runs_are_two_wishes(gangline, tracker):
    assert gangline("track", "push", RUN, "--all").exit_code == 2


def test_status_says_how_far_a_tracker_is():
    record = records.passed()
    assert _state(None, record, 5000) == "has nothing of this run"
    assert _state(Mirrored(place="x", size_bytes=600_000), record, 5000) == "offline folder, 600 kB"
    assert _state(Mirrored(place="x", step=118, time_ms=1000), record, 5000) == "118 of 120 steps, 4.0 s behind"
    assert _state(Mirrored(place="x", step=120, time_ms=5000), record, 5000) == "current"
    assert _state(Mirrored(place="x"), record, 5000) == "has the run, and no points"
    assert _state(Mirrored(place="x"), record, None) == "has the run, and no points"
