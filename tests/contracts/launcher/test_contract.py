"""What every launcher promises, by its protocol alone."""

import threading
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.contracts.launcher.gangs import HEAD, SAVER, SLEEPER, STEPPER, poll

from gangline.errors import IntegrityError, StillRunning, UsageError
from gangline.spec.gang.podset import DEADLINE_KEY
from gangline.spec.program_files import OUTPUTS_VARIABLE, Outputs, OutputsRequest


def end_of(stand, name="run-1"):
    for event in stand.launcher.follow(name):
        if event.end is not None:
            return event.end
    raise AssertionError("follow ended without an end")


def test_gang_runs_to_its_end_and_follow_reports_all_of_it(stand):
    gang = stand.launcher.submit(stand.podset(STEPPER))
    events = list(stand.launcher.follow("run-1"))
    assert not gang.adopted
    steps = [event.data["step"] for event in events if event.kind == "progress" and event.data["rank"] == 0]
    assert steps == [0, 1, 2, 3, 4]
    assert {event.data["rank"] for event in events if event.kind == "progress"} == {0, 1}
    states = [event.status.state for event in events if event.kind == "state"]
    assert states[-1] == "ended"
    assert (events[-1].kind, events[-1].end.exit_code) == ("end", 0)
    assert stand.launcher.collect("run-1") == events[-1].end
    assert stand.store.get("runs/p/c/run-1/ranks/1.jsonl").data.count(b"\n") == 5
    poll(lambda: not stand.processes())


WRITER = (
    HEAD
    + """
import pathlib
pathlib.Path("out").mkdir(exist_ok=True)
if rank == 0:
    pathlib.Path("out/model.pt").write_text(f"weights of generation {generation}")
    pathlib.Path("metrics.json").write_text("{}")
step(0)
if generation == 0:
    pathlib.Path("out/of-the-first").write_text("stays")
    end(34) if rank == 0 else time.sleep(60)
"""
)


def test_what_rank_0_wrote_is_in_the_store_when_the_gang_has_ended(stand):
    podset = stand.podset(WRITER)
    asked = OutputsRequest(
        globs=("out/**",), metrics="metrics.json", code=podset.code, most_files=10, most_bytes=1000
    )  # fmt: skip
    stand.launcher.submit(replace(podset, env={OUTPUTS_VARIABLE: asked.to_json().decode()}))
    assert end_of(stand).exit_code == 0
    found = Outputs.from_json(stand.store.get("runs/p/c/run-1/outputs.json").data)
    assert (found.gang, [file.path for file in found.files]) == ("run-1", ["out/model.pt", "out/of-the-first"])
    data = stand.store.get(f"runs/p/c/run-1/outputs/{found.files[0].sha256}").data
    assert data == b"weights of generation 1"
    assert found.metrics.path == "metrics.json"


def test_second_submit_adopts_also_after_the_end(stand):
    first = stand.launcher.submit(stand.podset(STEPPER))
    second = stand.again().submit(stand.podset(STEPPER))
    assert (second.adopted, second.uid, second.podset) == (True, first.uid, first.podset)
    end_of(stand)
    assert stand.again().submit(stand.podset(STEPPER)).uid == first.uid
    assert stand.launcher.status("run-1").generation == 0


def test_other_podset_under_the_same_name_is_refused_by_field(stand):
    stand.launcher.submit(stand.podset(SLEEPER))
    with pytest.raises(IntegrityError, match=r"grace_seconds: 20\.0 -> 21"):
        stand.again().submit(stand.podset(SLEEPER, grace_seconds=21))


def test_status_goes_from_absent_to_running_to_ended(stand):
    assert stand.launcher.status("run-1").state == "absent"
    stand.launcher.submit(stand.podset(SLEEPER))
    poll(lambda: stand.launcher.status("run-1").state == "running")
    assert stand.again().status("run-1").joined == 2
    with pytest.raises(StillRunning, match="run-1"):
        stand.launcher.collect("run-1")
    stand.launcher.cancel("run-1", reason="enough")
    assert stand.launcher.status("run-1").state == "ended"


def test_gang_that_is_not_there_is_said_so(stand):
    for call in (stand.launcher.collect, lambda name: list(stand.launcher.follow(name))):
        with pytest.raises(UsageError, match="no gang 'nothing'"):
            call("nothing")
    stand.launcher.cancel("nothing", reason="twice is fine")
    with pytest.raises(UsageError, match="gang name: wanted"):
        stand.launcher.status("../etc")


def test_restart_is_reported_and_logs_of_the_dead_rank_stay(stand):
    stand.launcher.submit(
        stand.podset(HEAD + "print('life', generation); generation or rank == 0 or os.kill(os.getpid(), 9)")
    )
    events = list(stand.launcher.follow("run-1"))
    assert [event.text for event in events if event.kind == "restart"] == ["rank 1 ended by signal 9"]
    assert (events[-1].end.exit_code, events[-1].end.restarts) == (0, 1)
    lines = [line.text for line in stand.launcher.logs("run-1", ranks=[1]) if not line.text.startswith("----")]
    assert lines == ["life 0", "life 1"]
    assert {line.rank for line in stand.launcher.logs("run-1", ranks=None)} == {0, 1}


def test_status_of_a_gang_that_restarted_says_so(stand):
    stand.launcher.submit(
        stand.podset(HEAD + "generation or rank == 0 or os.kill(os.getpid(), 9); step(0); time.sleep(120)")
    )
    threading.Thread(target=lambda: list(stand.launcher.follow("run-1")), daemon=True).start()
    poll(lambda: stand.launcher.status("run-1").generation == 1)
    poll(lambda: stand.launcher.status("run-1").joined == 2)
    status = stand.launcher.status("run-1")
    assert (status.state, status.generation, status.restarts) == ("running", 1, 1)


@pytest.mark.parametrize(
    ("program", "code", "retry", "restarts"),
    [
        ("end(31)", 31, "never", 0),
        ("end(32)", 32, "changed", 0),
        ("end(34)", 30, "never", 1),
        ("sys.exit(31)", 30, "never", 0),
        ("sys.exit(34)", 30, "never", 0),
        ("sys.exit(42)", 30, "never", 0),
        ("os.abort()", 30, "never", 0),
        ("os.kill(os.getpid(), 9)", 30, "never", 1),
    ],
)
def test_exit_class_is_that_of_the_culprit(stand, program, code, retry, restarts):
    program = HEAD + f"(time.sleep(60) if rank == 0 else time.sleep(1.1 * generation)) or {program}"
    stand.launcher.submit(stand.podset(program, restarts=1))
    end = end_of(stand)
    assert (end.exit_code, end.retry, end.restarts, end.culprit) == (code, retry, restarts, 1), end
    assert abs(sum(end.ledger.values()) - end.allocated_seconds) <= 1e-3 * end.allocated_seconds


def test_cancel_lets_ranks_save_and_may_come_again(stand):
    stand.launcher.submit(stand.podset(SAVER))
    events = stand.launcher.follow("run-1")
    next(event for event in events if event.kind == "progress")
    poll(lambda: len([line for line in stand.launcher.logs("run-1", ranks=None) if "rank" in line.text]) == 2)
    poll(lambda: sum(1 for rank in (0, 1) for _ in stand.launcher.logs("run-1", ranks=[rank])) == 2)
    stand.launcher.cancel("run-1", reason="a better idea")
    assert not stand.processes()
    end = stand.launcher.collect("run-1")
    assert (end.exit_code, end.retry) == (70, "never")
    assert "a better idea" in end.reason
    stand.launcher.cancel("run-1", reason="again")
    assert stand.launcher.collect("run-1") == end
    assert list(events)[-1].end == end


def test_cancel_right_after_submit_leaves_nothing(stand):
    stand.launcher.submit(stand.podset(SLEEPER))
    stand.launcher.cancel("run-1", reason="too early", save=False)
    assert not stand.processes()
    assert stand.launcher.collect("run-1").exit_code == 70


def test_gang_past_its_deadline_is_stopped(stand):
    stand.launcher.submit(stand.podset(SLEEPER, deadline_seconds=1.0))
    end = end_of(stand)
    assert end.exit_code == 30
    assert "deadline of 1 s exceeded; raise limits.run_seconds of site.toml" in end.reason


def test_gang_past_the_deadline_of_its_plan_names_that(stand):
    stand.launcher.submit(stand.podset(SLEEPER, deadline_seconds=1.0, env={DEADLINE_KEY: "plan.deadline_seconds"}))
    assert "raise plan.deadline_seconds" in end_of(stand).reason


def test_sweep_deletes_ended_and_orphaned_runs_only(stand):
    for name in ("ended", "orphan", "followed", "unknown"):
        stand.launcher.submit(stand.podset(SLEEPER, name, ranks=1))
    swept = stand.launcher.sweep(now=datetime.now(UTC), life=lambda run: run)
    assert {each.name: each.deleted for each in swept} == {
        "ended": True,
        "orphan": True,
        "followed": False,
        "unknown": False,
    }
    poll(lambda: stand.launcher.status("ended").state == "absent")
    assert stand.launcher.status("followed").state != "absent"
    poll(lambda: not stand.processes("orphan"))
    poll(lambda: stand.processes("unknown"))
