"""Ranks of tests end with them, however these end: what is left behind would slow every later run."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.train.gang import ROOT

from gangline.procfs import state

STARTS = {
    "checkpoint": "from tests.checkpoint.forked import run_gang; run_gang(2, rest, {folder!r})",
    "compress": "from tests.train.parallel.compress.ranks import on_ranks; on_ranks(2, rest_beside, {folder!r})",
}
SECONDS = 300.0


def rest(rank, group, folder):
    del rank, group
    rest_beside(folder)


def rest_beside(folder):
    """Say who one is, then do nothing for longer than any test."""
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(600)


def wait_for(condition, seconds=SECONDS):
    patience = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < patience
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", STARTS)
def test_a_killed_test_leaves_no_rank(tmp_path, kind):
    script = f"from tests.train.test_orphans import rest, rest_beside\n{STARTS[kind].format(folder=str(tmp_path))}"
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, env=environ) as parent:
        wait_for(lambda: len(list(tmp_path.iterdir())) == 2 or parent.poll() is not None)
        ranks = [int(each.name) for each in tmp_path.iterdir()]
        assert len(ranks) == 2
        parent.send_signal(signal.SIGKILL)
    wait_for(lambda: {state(pid) for pid in ranks} <= {None, "Z"}, seconds=20.0)
