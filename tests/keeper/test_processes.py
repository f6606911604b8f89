"""A keeper whose ranks end with 0 while other processes of theirs fail: what its end says of them."""

import sys

import pytest

from gangline.spec.codec import from_plain
from gangline.spec.processes import ProcessReport

FIT = "raise RuntimeError('its shard is missing')"
WRITE = f"""
import os, subprocess, sys, time
open("fit.py", "w").write({FIT!r})
generation = int(os.environ["GANGLINE_GENERATION"])
"""


def report(gang) -> ProcessReport:
    end = gang.end()
    assert end.exit_code == 0, end
    return from_plain(ProcessReport, end.evidence["processes"])


def test_failures_of_all_ranks_are_in_the_end_of_a_gang_with_what_was_raised_and_are_counted(keep):
    gang = keep(WRITE + "for _ in range(3): subprocess.run([sys.executable, 'fit.py'])\nprint('trained')", ranks=2)
    found = report(gang)
    (failure,) = found.failed
    assert failure.text == "fit.py on rank 0 ended with code 1, as 5 more did: RuntimeError: its shard is missing"
    assert (found.num_failed, found.unseen, found.unwatched) == (6, (), ())


def test_a_gang_of_which_no_process_fails_says_so(keep):
    found = report(keep("import subprocess, sys; subprocess.run([sys.executable, '-c', 'pass'])"))
    assert found == ProcessReport()


@pytest.mark.parametrize(
    ("command", "failed", "unwatched"),
    [
        (("bash", "-c", "python program.py | tee log; true"), ["program.py"], (0,)),
        (("sh", "-c", "python program.py; ls"), ["program.py"], (0,)),
        (("sh", "-c", "python program.py & wait"), ["program.py"], (0,)),
        (("make", "-s", "-f", "program.py"), [], (0,)),
        (("ls",), [], ()),
    ],
)
def test_a_rank_that_is_no_python_is_named_if_it_started_others_and_pythons_below_it_report(
    keep, command, failed, unwatched
):
    program = "all:\n\t-false\n" if command[0] == "make" else FIT
    found = report(keep(program, ranks=1, command=command))
    assert [each.program for each in found.failed] == failed
    assert found.unwatched == unwatched


def test_a_pipeline_of_the_command_ends_with_the_failure_of_its_left_side(keep):
    end = keep(FIT, ranks=1, restarts=0, command=("sh", "-c", "python program.py | tee log")).end()
    assert (end.exit_code, end.culprit) == (30, 0)
    assert "RuntimeError: its shard is missing" in end.reason
    found = report(keep("pass", ranks=1, command=("sh", "-c", "python program.py | tee log")))
    assert found.pipefail
    assert not report(keep("pass", ranks=1, command=("sh", "-c", "python program.py || ls"))).pipefail


def test_an_orphan_that_fails_while_its_rank_works_is_seen_by_the_keeper(keep):
    program = f"""
import os, subprocess, time
subprocess.run(["sh", "-c", "(sleep 1; exec {sys.executable} -I -c 'import os; os._exit(7)') & true"])
time.sleep(3)
"""
    found = report(keep(program, ranks=1))
    assert [each.how for each in found.failed] == ["code 7"]


def test_what_failed_with_a_generation_is_not_counted_again_by_the_next_one(keep):
    text = "if generation == 0: subprocess.run([sys.executable, 'fit.py']); os.kill(os.getpid(), 9)"
    gang = keep(WRITE + text, ranks=1)
    assert report(gang) == ProcessReport()
    (restart,) = gang.events("restart")
    assert restart["reason"].startswith("rank 0 ended by signal 9")


def test_processes_that_are_stopped_at_the_end_of_a_rank_have_not_failed(keep):
    program = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
    gang = keep(program, ranks=1)
    assert report(gang) == ProcessReport()
    assert len(gang.end().evidence["leftovers"]) == 1


def test_a_failed_rank_names_the_process_that_failed_before_it(keep):
    program = (
        WRITE
        + "try: subprocess.run([sys.executable, 'fit.py'], check=True)\n"
        + "except subprocess.CalledProcessError: print('cleaning up\\n' * 30); raise SystemExit('no model')"
    )
    end = keep(program, ranks=1, restarts=0).end()
    assert end.exit_code == 30
    assert end.reason.startswith(
        "rank 0 ended with code 1: no model; before it, fit.py on rank 0 ended with code 1: RuntimeError: its shard is"
    )


def test_a_secret_that_a_process_names_is_not_in_the_end_of_the_gang(keep):
    program = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'raise ValueError(\"pass\" \"word-123\")'])"
    )
    found = report(keep(program, ranks=1, TOKEN="password-123", GANGLINE_SECRET_VARIABLES="TOKEN"))
    assert "password-123" not in found.failed[0].text
