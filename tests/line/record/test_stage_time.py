"""A stage's time is its own: the same under every driver, however often and however late anybody looks."""

import os
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.kfp.driving import kfp_run
from tests.line import repositories
from tests.line.records import record as make_record

from gangline.errors import StillRunning
from gangline.line.gangs.sandbox import sandbox_of
from gangline.line.record.context import StageTime
from gangline.line.record.states import end_stage, record_stage_seconds, start_stage
from gangline.line.request.run_request import resolve_request
from gangline.line.run.driver_process import PROGRAM, DriverProcess
from gangline.spec.record import StageInfo
from gangline.spec.run_flags import stage
from gangline.units import parse_time

pytestmark = pytest.mark.long

TRAIN_SECONDS = 3.0
LATE_SECONDS = 6.0
"""Nobody looks for so long after the gang has ended."""
PATIENT = """\
import pathlib, time
home = pathlib.Path(os.environ["HOME"])
(home / "began").touch()
while not (home / "go").exists():
    time.sleep(0.02)
"""


class Training:
    """A workspace whose gang trains until the test lets it end."""

    def __init__(self, workspace, home):
        self.workspace, self.home = workspace, home

    def begun(self):
        return (self.home / "began").exists()

    def end(self):
        (self.home / "go").touch()

    def ended(self):
        return bool(list((self.workspace.repo / ".gangline" / "gangs").rglob("exit-*.json")))

    def end_later(self):
        """As soon as it has trained for a while."""

        def wait():
            until(self.begun)
            time.sleep(TRAIN_SECONDS)
            self.end()

        threading.Thread(target=wait, daemon=True).start()

    def end_unseen(self):
        """At the end of a while, and then nobody looks for a longer one."""
        time.sleep(TRAIN_SECONDS)
        self.end()
        until(self.ended)
        time.sleep(LATE_SECONDS)


@pytest.fixture
def training(workspace, tmp_path):
    repositories.commit(workspace.repo, {"answer.py": "import os\n" + PATIENT + repositories.PROGRAM})
    asked = resolve_request(workspace.repo, commit=None, overrides=(), strategy=None)
    sandbox = sandbox_of(workspace.repo, "own", home=asked.kept_home, **workspace.where)
    found = Training(workspace, tmp_path if sandbox.is_unconfined else sandbox.home)
    yield found
    found.end()


def until(holds):
    deadline = time.monotonic() + 90
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def run(training):
    training.end_later()
    return training.workspace.run(), 0.0


def stage_command(training):
    """Short looks with nobody between them, the last one long after the end."""
    workspace = training.workspace
    name = workspace.run(until="submit").run.id
    for _ in range(3):
        with pytest.raises(StillRunning):
            workspace.stage("train", name, follow_seconds=0.2)
        time.sleep(0.3)
    training.end_unseen()
    workspace.stage("train", name, follow_seconds=30.0)
    return workspace.run(), LATE_SECONDS


def kfp(training):
    """A task of the pipeline for each stage."""
    training.end_later()
    return kfp_run(training.workspace), 0.0


def service(training):
    """The service's child dies while the gang trains; the next one comes late."""
    workspace = training.workspace
    repositories.settle_inventory(workspace.repo)
    command = (*PROGRAM, str(workspace.repo))
    child = DriverProcess.start(
        workspace.repo / ".gangline" / "orders", 1, command, environ={**os.environ, **workspace.environ}
    )
    until(training.begun)
    child.end()
    training.end_unseen()
    return workspace.run(), LATE_SECONDS


@pytest.mark.parametrize("drive", [run, stage_command, kfp, service], ids=lambda drive: drive.__name__)
def test_time_of_a_training_is_its_own_no_matter_who_drives(training, drive):
    record, late = drive(training)
    train = stage(record, "train")
    span = parse_time(train.ended) - parse_time(stage(record, "submit").ended)
    assert record.run.verdict == "passed"
    assert TRAIN_SECONDS <= train.seconds <= span.total_seconds() - late + 0.1
    assert train.counted_until is None


def at(seconds):
    return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).isoformat()


def looked(*, seconds, counted_at):
    """A record whose train stage was left after so many seconds of its own."""
    begun = start_stage(make_record(), "train", now=at(0))
    return record_stage_seconds(begun, "train", now=at(counted_at), seconds=seconds)


def time_of(record, *, found):
    """The clock of a driver that comes `found` seconds after the beginning, at its first moment."""
    clock = StageTime.of(record, "train")
    return replace(clock, start=datetime.fromisoformat(at(found)), start_monotonic=time.monotonic())


@pytest.mark.parametrize(
    ("ended", "seconds"), [(None, 250), (at(150), 100), (at(40), 50), (at(900), 250), ("", 250), ("tomorrow", 250)]
)
def test_between_two_looks_a_stage_counts_while_its_gang_continues(ended, seconds):
    clock = time_of(looked(seconds=50.0, counted_at=100), found=300)
    clock.gang_found(ended)
    assert clock.seconds == pytest.approx(seconds, abs=0.5)


def test_without_a_gang_nothing_happens_between_two_drivers():
    assert time_of(looked(seconds=50.0, counted_at=100), found=300).seconds == pytest.approx(50, abs=0.5)


def test_of_several_gangs_the_last_one_says_how_long_it_went_on():
    clock = time_of(looked(seconds=0.0, counted_at=0), found=300)
    for ended in (at(20), at(120)):
        clock.gang_found(ended)
    assert clock.seconds == pytest.approx(120, abs=0.5)


def test_a_driver_that_died_left_the_time_of_its_gang_to_the_next_one():
    begun = start_stage(looked(seconds=50.0, counted_at=100), "train", now=at(200))
    clock = time_of(begun, found=300)
    clock.gang_found(None)
    assert clock.seconds == pytest.approx(250, abs=0.5)


def test_a_gang_that_was_started_by_the_stage_before_counts_from_there():
    submitted = replace(make_record(), stages={"submit": StageInfo(state="done", started=at(0), ended=at(10))})
    clock = time_of(start_stage(submitted, "train", now=at(60)), found=60)
    clock.gang_found(at(40))
    assert clock.seconds == pytest.approx(30, abs=0.5)


def test_a_stage_that_ended_has_one_number():
    ended = end_stage(looked(seconds=1.0, counted_at=1), "train", "done", now=at(9), seconds=7.0, message="m")
    assert (stage(ended, "train").seconds, stage(ended, "train").counted_until) == (7.0, None)
