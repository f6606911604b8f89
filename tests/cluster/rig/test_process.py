"""A process is known by id and start, and ended for sure."""

import json
import os
import subprocess
import sys
import time

import pytest
from tests.cluster.rig import process


@pytest.fixture
def child():
    made = []

    def start(program):
        running = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        made.append(running)
        running.stdout.readline()
        return running

    yield start
    for each in made:
        each.kill()
        each.communicate()


def test_living_process_is_found_by_its_file(tmp_path):
    process.write(tmp_path / "me", os.getpid())
    assert process.read(tmp_path / "me") == os.getpid()


def test_id_that_somebody_else_has_by_now_is_not_ours(tmp_path):
    (tmp_path / "other").write_text(json.dumps({"pid": os.getpid(), "start": 1}))
    assert process.read(tmp_path / "other") is None


def test_never_written_is_no_process(tmp_path):
    assert process.read(tmp_path / "nothing") is None


def test_one_that_heeds_term_gets_no_kill(tmp_path, child):
    running = child("import signal, sys; signal.signal(15, lambda *_: sys.exit(7)); print(flush=True); signal.pause()")
    process.write(tmp_path / "it", running.pid)
    process.end(tmp_path / "it", seconds=20)
    assert running.wait() == 7
    assert not (tmp_path / "it").exists()


def test_one_that_does_not_is_killed(tmp_path, child):
    running = child("import signal; signal.signal(15, signal.SIG_IGN); print(flush=True); signal.pause()")
    process.write(tmp_path / "it", running.pid)
    began = time.monotonic()
    process.end(tmp_path / "it", seconds=0.2)
    assert running.wait() == -9
    assert time.monotonic() - began < 20
