"""One process that is given a share of everything, and ended with all that it started."""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from gangline.git.bounded_process import (
    OutputTooLarge,
    ProcessLimits,
    ProcessStopped,
    ProcessTimeout,
    run_bounded,
    stream_bounded,
)

pytestmark = pytest.mark.row("C8")
HANGING = (
    "import subprocess, sys; child = subprocess.Popen(['sleep', '30']); print(child.pid, flush=True); child.wait()"
)


def run(program, **bounds):
    command = [sys.executable, "-c", program]
    given = ProcessLimits(**({"seconds": 60.0} | bounds))
    return run_bounded(command, name="a program", folder=Path("/"), environ=os.environ, bounds=given)


def is_there(pid):
    with contextlib.suppress(FileNotFoundError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    return False


def test_answer_and_complaint_come_back_whole():
    done = run("import sys; sys.stdout.write('a' * 3_000_000); sys.stderr.write('b'); sys.exit(3)")
    assert (len(done.stdout), done.stderr, done.returncode) == (3_000_000, b"b", 3)


def test_an_answer_is_read_up_to_its_limit():
    with pytest.raises(OutputTooLarge, match="a program wrote more than"):
        run("for _ in range(100): print('a' * 100_000)", most_bytes=1 << 20)


def test_complaints_are_kept_up_to_a_limit():
    assert len(run("import sys; sys.stderr.write('b' * 3_000_000)").stderr) == 64 << 10


def test_a_process_that_takes_too_long_is_killed():
    with pytest.raises(ProcessTimeout, match="a program took longer than 1 s"):
        run("import time; time.sleep(20)", seconds=1.0)


def test_a_process_that_no_one_waits_for_is_killed_with_what_it_started(tmp_path):
    pids = []

    def is_over():
        pids.extend(int(each) for each in (tmp_path / "pid").read_text().split()) if (tmp_path / "pid").exists() else ()
        return bool(pids)

    with pytest.raises(ProcessStopped):
        run(f"import sys; sys.stdout = open({str(tmp_path / 'pid')!r}, 'w')\n{HANGING}", is_over=is_over)
    deadline = time.monotonic() + 5
    while is_there(pids[0]):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_stream_that_is_left_kills_its_process():
    bounds = ProcessLimits(seconds=60.0)
    stream = stream_bounded(
        [sys.executable, "-c", HANGING], name="a", folder=Path("/"), environ=os.environ, bounds=bounds, ended=None
    )
    pid = int(next(stream))
    stream.close()
    deadline = time.monotonic() + 5
    while is_there(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_memory_is_bounded():
    done = run("a = bytearray(400 << 20)", memory_bytes=200 << 20)
    assert b"MemoryError" in done.stderr
    assert run("a = bytearray(400 << 20)", memory_bytes=800 << 20).returncode == 0


def test_processor_time_is_bounded():
    assert run("while True: pass", cpu_seconds=1).returncode == -signal.SIGXCPU


def test_files_are_bounded(tmp_path):
    done = run(f"open({str(tmp_path / 'file')!r}, 'wb').write(bytes(1 << 20))", file_bytes=1 << 16)
    assert done.returncode == 1
    assert (tmp_path / "file").stat().st_size <= 1 << 16


@pytest.mark.parametrize("bounds", [{}, {"file_bytes": 0}])
def test_a_program_that_is_not_there_is_said_so_with_and_without_limits(bounds):
    given = ProcessLimits(seconds=60.0, **bounds)
    with pytest.raises(FileNotFoundError, match="no-such-git"):
        run_bounded(["no-such-git"], name="git", folder=Path("/"), environ=os.environ, bounds=given)


def test_limits_hold_from_the_first_instruction_for_it_and_for_what_it_starts():
    kinds = "r.RLIMIT_DATA, r.RLIMIT_FSIZE, r.RLIMIT_CPU"
    program = f"import resource as r; print([r.getrlimit(each) for each in ({kinds})])"
    done = run(program, memory_bytes=1 << 30, file_bytes=1 << 16, cpu_seconds=7)
    assert done.stdout.decode().strip() == str([(1 << 30, 1 << 30), (1 << 16, 1 << 16), (7, 8)])
    quick = ProcessLimits(seconds=60.0, file_bytes=0)
    for _ in range(20):
        command = ["/bin/sh", "-c", "ulimit -f", "a command; echo", "$(echo no) 'words'"]
        done = run_bounded(command, name="a program", folder=Path("/"), environ={}, bounds=quick)
        assert done.stdout == b"0\n"


def test_a_process_that_does_not_end_when_it_is_asked_is_killed(tmp_path):
    pid = tmp_path / "pid"
    program = (
        f"import os, pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\npathlib.Path({str(pid)!r})"
    )
    with pytest.raises(ProcessStopped):
        run(f"{program}.write_text(str(os.getpid())); time.sleep(20)", is_over=lambda: pid.exists() and pid.read_text())
    assert not is_there(int(pid.read_text()))
