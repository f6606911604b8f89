"""A keeper over real processes: generations, classes, stops, and nothing left behind."""

import os
import signal
import sys

from tests.keeper.coordination.nodes import HEAD

from gangline.keeper.ranks.rank_processes import MOST_LEFTOVERS
from gangline.spec.plan import SaveCosts


def test_ranks_that_are_done_end_the_gang_with_0_and_mirror_their_output(keep, tmp_path):
    gang = keep(HEAD + "open(os.environ['GANGLINE_OUT'] + f'/ranks/{rank}.jsonl', 'w').write('{}\\n{')")
    end = gang.end()
    assert (end.exit_code, end.restarts, end.culprit) == (0, 0, None), end
    assert gang.process.returncode == 0
    stored = tmp_path / "store" / "runs/p/c/r/ranks"
    assert (stored / "1.jsonl").read_text() == "{}\n", "a torn last line is not mirrored"
    assert abs(sum(end.ledger.values()) - end.allocated_seconds) < 1e-3 * end.allocated_seconds
    assert not gang.leftovers()


LEAVES = """
import os, subprocess, sys
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
if rank:
    subprocess.Popen(sleep, start_new_session=True)
    if not os.fork():
        os.execlp("sleep", "sleep", "600")
elif not os.fork():
    time.sleep(0.2)
"""


def test_processes_that_ranks_leave_are_named_and_ended_those_that_end_by_themselves_are_not(keep):
    gang = keep(HEAD + LEAVES)
    end = gang.end()
    assert end.exit_code == 0
    commands = [f"{sys.executable} -c import time; time.sleep(600)"[:120], "sleep 600"]
    assert sorted(end.evidence["leftovers"]) == sorted(commands)
    assert not gang.leftovers()


ODD = """
import subprocess
for _ in range(24 if rank else 0):
    subprocess.Popen([b"name\\xff", b"-c", b"sleep 600 # " + b"x" * 100_000], executable="/bin/sh")
"""


def test_commands_of_leftover_processes_are_bounded_in_number_and_length_whatever_they_are(keep):
    end = keep(HEAD + ODD, ranks=2).end()
    assert end.exit_code == 0
    assert len(end.evidence["leftovers"]) == MOST_LEFTOVERS
    assert {len(each) for each in end.evidence["leftovers"]} <= set(range(1, 121))
    assert any("\ufffd" in each for each in end.evidence["leftovers"])


def test_killed_rank_makes_a_new_generation_and_costs_one_event(keep):
    gang = keep(HEAD + "print('hello'); generation or (rank == 1 and os.kill(os.getpid(), 9)) or time.sleep(60)")
    end = gang.end()
    assert (end.exit_code, end.restarts, end.generation) == (0, 1, 1), end
    assert [event["charged"] for event in gang.events("restart")] == [True]
    assert gang.log(1).count("---- rank 1, generation") == 2
    assert gang.log(1).count("hello") == 2


def test_interval_between_saves_follows_the_interruptions_of_the_gang(keep):
    """One interruption at once, where one in 100 days was expected: the mean is 50 days, saves of 1 us every 2.94 s."""
    costs = SaveCosts(blocking_seconds=1e-6, step_seconds=1.0, seconds_between_failures=8.64e6)
    program = """
print("every", os.environ.get("GANGLINE_SAVE_EVERY"), flush=True)
generation or (rank == 1 and os.kill(os.getpid(), 9)) or time.sleep(60)
"""
    gang = keep(HEAD + program, costs=costs)
    assert (end := gang.end()).generation == 1, end
    assert [each for each in gang.log(1).splitlines() if "every" in each] == ["every None", "every 3"]
    assert "every 3" in gang.log(0), "all ranks agree"
    [changed] = gang.events("save_interval")
    assert (changed["every"], changed["planned"], changed["generation"]) == (3, 5, 1)


def test_error_of_the_program_is_never_tried_again(keep):
    gang = keep(HEAD + "rank or time.sleep(60); print('broken by design'); sys.exit(42)")
    end = gang.end()
    assert (end.exit_code, end.retry, end.culprit, end.restarts) == (30, "never", 1, 0), end
    assert end.reason == "rank 1 ended with code 42: broken by design; see logs/1.log"
    assert "broken by design" in end.evidence["log"]
    assert gang.process.returncode == 30


def test_rank_that_lost_a_peer_is_never_the_culprit(keep):
    gang = keep(HEAD + "end(34) if rank == 0 else (time.sleep(0.5), end(31))", ranks=2)
    end = gang.end()
    assert (end.exit_code, end.culprit) == (31, 1), end


def test_sigterm_lets_ranks_save_and_is_free(keep):
    gang = keep(
        HEAD
        + "signal.signal(signal.SIGTERM, lambda *_: (print('saved'), end(143)))\n"
        + "heartbeat.beat(0, 'train')\n"
        + "while True: time.sleep(0.1)"
    )
    gang.wait_for(gang.beating)
    gang.process.send_signal(signal.SIGTERM)
    end = gang.end()
    assert (end.exit_code, end.retry) == (143, "free"), end
    assert "saved" in gang.log(0)
    assert "saved" in gang.log(1)


def test_killed_keeper_leaves_no_process(keep):
    gang = keep(HEAD + "time.sleep(60)")
    gang.wait_for(lambda: len(gang.events("rank_started")) == 2)
    os.kill(gang.process.pid, signal.SIGKILL)
    gang.process.wait()
    gang.wait_for(lambda: not gang.leftovers())
