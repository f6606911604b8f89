"""Stops over real processes: who is asked, what counts as finished, what was saved, and that all of it ends."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from tests.keeper.coordination.nodes import HEAD, poll

from gangline.keeper.ipc.heartbeat import HeartbeatWriter
from gangline.keeper.ranks.generation import RankProcesses

WITH_HELPERS = """
import subprocess
helper = subprocess.Popen(["sleep", "600"])
def save(*_):
    time.sleep(0.3)
    assert helper.poll() is None, "its helper was ended before it could save"
    tell("saved", step=7)
    end(143)
signal.signal(signal.SIGTERM, save)
tell("started")
heartbeat.beat(7, "train")
while True: time.sleep(0.05)
"""
SHELL = ("sh", "-c", "python program.py; exit $?")


@pytest.mark.parametrize("command", [("python", "program.py"), SHELL, ("sh", "-c", "python program.py | cat; exit 5")])
def test_stop_asks_the_rank_alone_which_saves_with_the_help_of_its_processes(keep, command):
    gang = keep(HEAD + WITH_HELPERS, ranks=1, command=command)
    gang.wait_for(lambda: gang.beating(ranks=1, step=7))
    gang.process.send_signal(signal.SIGTERM)
    end = gang.end()
    assert (end.exit_code, end.step, end.saved_step) == (143, 7, 7), gang.log()
    assert end.reason == "asked to stop by SIGTERM; step 7 is saved"
    assert not gang.leftovers()


def test_every_process_that_joined_is_asked(keep):
    program = """
    signal.signal(signal.SIGTERM, lambda *_: (print("saved", sys.argv, flush=True), end(143)))
    import subprocess
    if len(sys.argv) == 1:
        others = [subprocess.Popen([sys.executable, "program.py", name]) for name in ("a", "b")]
        sys.exit(max(each.wait() for each in others))
    heartbeat.beat(0, "train")
    while True: time.sleep(0.05)
    """
    gang = keep(HEAD + program.replace("\n    ", "\n"), ranks=1)
    joined = gang.home / "heartbeat" / "0.joined"
    gang.wait_for(lambda: joined.exists() and joined.read_text().count("\n") == 2)
    gang.process.send_signal(signal.SIGTERM)
    assert gang.end().exit_code == 143
    assert gang.log().count("saved") == 2, "and their parent, which did not join, was left alone"


def test_where_a_shell_dies_of_the_request_its_processes_are_asked_in_turn(keep):
    program = "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), print('saved'), sys.exit(0)))\n"
    gang = keep(HEAD + program + "print('up', flush=True)\nwhile True: time.sleep(0.05)", ranks=1, command=SHELL)
    gang.wait_for(lambda: "up" in gang.log())
    gang.process.send_signal(signal.SIGTERM)
    end = gang.end()
    assert "saved" in gang.log()
    assert end.reason == "asked to stop by SIGTERM; what its program saved is not known"
    assert not gang.leftovers()


@pytest.mark.parametrize("command", [("python", "program.py"), SHELL])
def test_rank_that_ignores_the_request_ends_with_all_that_it_started_after_the_grace_period(keep, command):
    program = "import subprocess\nsubprocess.Popen(['sleep', '600'])\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    program += "tell('started'); heartbeat.beat(7)\nwhile True: time.sleep(0.05)"
    gang = keep(HEAD + program, ranks=1, command=command, GANGLINE_GRACE_SECONDS="1")
    gang.wait_for(lambda: gang.beating(ranks=1, step=7))
    began = time.monotonic()
    gang.process.send_signal(signal.SIGTERM)
    end = gang.end()
    assert 1.0 < time.monotonic() - began < 10.0
    assert (end.exit_code, end.retry, end.saved_step) == (143, "same", 0)
    assert end.reason == "asked to stop by SIGTERM; nothing was saved: 7 steps are lost"
    assert not gang.leftovers()


ENDS_WITH_0 = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
rank < int(os.environ["LEAVE"]) and sys.exit(0)
{steps}
print("up", flush=True)
while True: time.sleep(0.05)
"""


@pytest.mark.parametrize(
    ("steps", "leave", "code", "said"),
    [
        (
            "",
            0,
            143,
            "ranks 0, 1 left with code 0 and did not report the last step; what its program saved is not known",
        ),
        ("heartbeat.beat(9)", 0, 143, "ranks 0, 1 left with code 0 and did not report the last step"),
        ("heartbeat.beat(10)", 0, 0, "all ranks were done"),
        ("heartbeat.beat(10)", 1, 0, "all ranks were done"),
        ("", 1, 143, "rank 1 left with code 0 and did not report the last step"),
    ],
)
def test_code_0_after_a_stop_request_counts_as_finished_only_by_the_steps_of_the_plan(keep, steps, leave, code, said):
    gang = keep(HEAD + ENDS_WITH_0.replace("{steps}", steps), LEAVE=str(leave))
    up = lambda: all("up" in gang.log(rank) for rank in range(leave, 2))  # noqa: E731
    gang.wait_for(lambda: up() and len(gang.events("rank_exited")) == leave)
    gang.process.send_signal(signal.SIGTERM)
    end = gang.end()
    assert (end.exit_code, end.retry) == (code, "free" if code else "never"), end
    assert said in end.reason


def test_deadline_names_the_key_that_set_it(keep):
    program = HEAD + "signal.signal(signal.SIGTERM, lambda *_: end(143))\nwhile True: time.sleep(0.05)"
    given = {"GANGLINE_DEADLINE_SECONDS": "1", "GANGLINE_DEADLINE_KEY": "plan.deadline_seconds"}
    end = keep(program, ranks=1, **given).end()
    assert (end.exit_code, end.retry) == (30, "never")
    assert end.reason.startswith("deadline of 1 s exceeded; raise plan.deadline_seconds; ")
    assert "raise limits.run_seconds of site.toml" in keep(program, ranks=1, GANGLINE_DEADLINE_SECONDS="1").end().reason


def test_failure_says_who_had_left_before(keep):
    gang = keep(HEAD + "rank and sys.exit(0)\ntime.sleep(1.0)\nsys.exit(3)")
    end = gang.end()
    assert (end.exit_code, end.culprit) == (30, 0)
    said = end.reason.removeprefix("rank 0 ended with code 3; rank 1 had ended with code 0 ")
    assert float(said.partition(" s before; see logs/0.log")[0]) == pytest.approx(1.0, abs=0.9)


def test_status_names_the_process_that_joined_below_a_shell_as_the_rank(keep):
    """Drills strike it."""
    gang = keep(HEAD + "heartbeat.beat(0)\nprint(os.getpid(), flush=True)\ntime.sleep(60)", ranks=1, command=SHELL)
    status = lambda: json.loads((gang.home / "keeper-0.json").read_text())  # noqa: E731
    gang.wait_for(lambda: gang.state() == "running" and gang.log().splitlines()[-1].isdecimal())
    pid = int(gang.log().split()[-1])
    gang.wait_for(lambda: status()["ranks"] == {"0": pid})
    os.kill(pid, signal.SIGKILL)
    gang.wait_for(lambda: status()["generation"] == 1 and status()["state"] == "running")
    assert gang.events("restart")[0]["reason"].startswith("rank 0 ended with code 137"), "as shells report it"
    gang.process.send_signal(signal.SIGTERM)
    assert gang.end().restarts == 1


def test_process_in_a_pid_namespace_of_its_own_is_found(tmp_path):
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("needs root and unshare, to make a pid namespace")
    program = f"""
import os, time
from pathlib import Path
from gangline.keeper.ipc.heartbeat import HeartbeatWriter
HeartbeatWriter(Path({str(tmp_path / "0")!r}))
print(os.getpid(), flush=True)
time.sleep(60)
"""
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-c", program]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"1\n", "so it calls itself"
        (found,) = RankProcesses(process.pid, tmp_path / "0").living()
        assert found not in (1, process.pid)
        os.kill(found, signal.SIGKILL)
        assert process.wait(10) != 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_what_else_is_in_the_file_of_joined_processes_is_passed_over(tmp_path):
    HeartbeatWriter(tmp_path / "0").close()
    processes = RankProcesses(-1, tmp_path / "0")
    assert processes.living() == [os.getpid()]
    with (tmp_path / "0.joined").open("ab") as file:
        file.write(b"1 2 3\nx y\n\xff\n" + b"9" * 5000 + b" 1\n4194303 12\n")
    assert processes.living() == [os.getpid()]
    poll(lambda: RankProcesses(7, tmp_path / "1").living() == [7])
