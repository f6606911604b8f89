"""SL3 and SL4: timers, preemption, cancellation and killed daemons, on a real Slurm with gangs without torch."""

import os
import signal
import time

import pytest
from tests.contracts.launcher.gangs import HEAD, SLEEPER, poll
from tests.launch.slurm.cluster.stand import SlurmStand

from gangline import procfs
from gangline.launch.local.folder import GangFolder
from gangline.launch.slurm.lives import read_life

pytestmark = pytest.mark.tools

SAVES = (
    HEAD
    + """
where = f"{os.environ['GANGLINE_HOME']}/step-{rank}"
done = int(open(where).read()) if os.path.exists(where) else 0
stop = []
signal.signal(15, lambda *_: stop.append(1))
while done < LAST:
    if stop:
        tell("saved", step=done)
        end(143)
    done += 1
    open(where, "w").write(str(done))
    step(done)
    time.sleep(0.1)
"""
)
"""Counts to LAST, one step in a tenth of a second; a stop is saved and the next life goes on from it."""


@pytest.fixture
def stand(slurm, tmp_path):
    made = SlurmStand(tmp_path, slurm, margin_seconds=60, time_seconds=125, lives=3)
    yield made
    made.close()


def saves(last: int) -> str:
    return SAVES.replace("LAST", str(last))


def steps_of(events) -> list[int]:
    return [event.data["step"] for event in events if event.kind == "progress" and event.data.get("event") == "step"
            and event.data["rank"] == 0]  # fmt: skip


def preempt(stand, *, servers: int = 9) -> str:
    """Start a job that takes servers from jobs of a lower tier; its number."""
    script = stand.root.parent / "urgent.sh"
    script.write_text("#!/bin/sh\nsleep 2\n")
    return stand.cluster.submit(
        script, "--partition=urgent", "--exclusive", f"--nodes={servers}", f"--ntasks={servers}"
    )


def test_preempted_gang_saves_and_its_next_life_goes_on_from_there(stand):
    stand.launcher.submit(stand.podset(saves(80), num_nodes=2, procs_per_node=1))
    events, preempted = [], False
    for event in stand.launcher.follow("run-1"):
        events.append(event)
        if not preempted and event.kind == "progress" and event.data.get("step", 0) >= 5:
            preempted = bool(preempt(stand))
    assert events[-1].end.exit_code == 0, events[-1].end
    steps = steps_of(events)
    assert steps == list(range(1, 81)), "no step is lost, none is repeated"
    (again,) = [event.text for event in events if event.kind == "restart"]
    assert "again, life 2 of 3" in again
    assert events[-1].end.restarts == 1
    assert events[-1].end.generation == 1
    seconds = events[-1].end.allocated_seconds
    assert abs(sum(events[-1].end.ledger.values()) - seconds) <= 1e-3 * seconds


@pytest.mark.slow  # Slurm looks at time limits twice a minute, so it takes a minute and more
def test_gang_whose_time_limit_comes_saves_and_goes_on(slurm, tmp_path):
    stand = SlurmStand(tmp_path, slurm, margin_seconds=95, time_seconds=120, lives=20)
    stand.launcher.submit(stand.podset(saves(300), num_nodes=2, procs_per_node=1))
    events = list(stand.launcher.follow("run-1"))
    stand.close()
    assert events[-1].end.exit_code == 0, events[-1].end
    assert steps_of(events) == list(range(1, 301))
    assert 1 <= events[-1].end.restarts < 20


def test_daemons_that_are_killed_stop_no_training(stand):
    stand.launcher.submit(stand.podset(saves(60), num_nodes=2, procs_per_node=1))
    seen = []
    for event in stand.launcher.follow("run-1"):
        seen.append(event)
        if event.kind == "progress" and event.data.get("step") == 5:
            stand.cluster.kill("slurmctld")
        if event.kind == "progress" and event.data.get("step") == 30:
            stand.cluster.start_controller()
    assert seen[-1].end.exit_code == 0, seen[-1].end
    assert steps_of(seen) == list(range(1, 61))
    assert any(event.status and event.status.stale_seconds for event in seen), "an absent Slurm is no state of a gang"


def test_keepers_whose_slurmstepd_is_killed_leave_nothing_behind(stand):
    stand.launcher.submit(stand.podset(SLEEPER))
    stand.wait_for_all("run-1")
    stand.cluster.kill("slurmstepd")
    began = time.monotonic()
    poll(lambda: not stand.processes(), seconds=10)
    assert time.monotonic() - began <= 10


def test_killed_keeper_is_noticed_at_once(stand):
    stand.launcher.submit(stand.podset(SLEEPER))
    stand.wait_for_all("run-1")
    keeper = next(pid for pid in stand.processes() if "gangline.keeper.main" in procfs.command(pid))
    os.kill(keeper, signal.SIGKILL)
    poll(lambda: stand.launcher.status("run-1").state == "ended")
    assert "keeper of node 0 died" in stand.launcher.collect("run-1").reason
    poll(lambda: not stand.processes())


def test_job_that_was_cancelled_in_slurm_is_a_cancelled_gang(stand):
    gang = stand.launcher.submit(stand.podset(SLEEPER))
    stand.wait_for_all("run-1")
    stand.cluster.run("scancel", gang.uid)
    poll(lambda: stand.launcher.status("run-1").state == "ended")
    assert stand.launcher.collect("run-1").exit_code in (70, 143)
    poll(lambda: not stand.processes())


def test_waiting_gang_says_why_and_is_cancelled_in_the_queue(stand):
    busy = stand.cluster.submit(sleeping(stand), "--exclusive", "--nodes=7", "--ntasks=7")
    stand.cluster.wait(busy, "RUNNING")
    stand.launcher.submit(stand.podset(SLEEPER))
    poll(lambda: "no servers are free" in stand.launcher.status("run-1").waiting)
    assert stand.launcher.status("run-1").state == "waiting"
    stand.launcher.cancel("run-1", reason="no time")
    assert stand.launcher.collect("run-1").reason == "cancelled: no time"
    stand.cluster.run("scancel", busy)


def sleeping(stand):
    script = stand.root.parent / "busy.sh"
    script.write_text("#!/bin/sh\nsleep 600\n")
    return script


def test_life_that_ended_is_counted_by_the_deadline(stand):
    stand.launcher.submit(stand.podset(SLEEPER, deadline_seconds=3.0))
    *_, last = stand.launcher.follow("run-1")
    assert "deadline of 3 s" in last.end.reason
    assert read_life(GangFolder(stand.root / "run-1")).life == 1
