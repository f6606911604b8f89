"""Workers that join a run from a second checkout with another site, over one store."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.line import repositories
from tests.line.run.test_stopping import processes_of
from tests.line.stages.test_parameter_server import LINE, TASK, until
from tests.report import records

from gangline.errors import CapacityError, ConfigError, IntegrityError, UsageError
from gangline.line.record.joined_workers import read_joined
from gangline.line.record.runs import list_runs
from gangline.line.stages.join_run import require_joinable
from gangline.signing.keys import signing_key
from gangline.signing.record_seal import Sealer
from gangline.spec.config.site import Site
from gangline.spec.record import StageInfo
from gangline.spec.run_flags import stage
from gangline.storage.open import open_store

SLOW = """\
import time
from model import Tiny

class Slow(Tiny):
    def loss(self, outputs, batch):
        time.sleep(0.02)
        return super().loss(outputs, batch)
"""
BLOCKS, JOINED = 120, 3


def slow_line():
    line = LINE.replace("model:Tiny", "slow:Slow").replace("outer_steps = 4", "outer_steps = 10")
    steps = f"steps = {BLOCKS * 5}"
    return line.replace("steps = 16", steps).replace("grace_seconds = 2", "grace_seconds = 1\nlease_seconds = 30")


@dataclass
class Checkout:
    """A clone with a site file of its own."""

    repo: Path
    site: Path
    config: Path

    def start(self, *arguments):
        command = [sys.executable, "-m", "gangline", *arguments, "--repo", str(self.repo), "--site", str(self.site)]
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CONFIG_HOME": str(self.config), "NO_COLOR": "1"}
        return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def call(self, *arguments):
        process = self.start(*arguments)
        said, _ = process.communicate(timeout=120)
        return process.returncode, said


@dataclass
class TwoCheckouts:
    own: Checkout
    other: Checkout
    url: str

    @property
    def store(self):
        return open_store(self.url)

    @property
    def record(self):
        return next(iter(list_runs(self.store)))


@pytest.fixture
def checkouts(tmp_path):
    own, other, url = tmp_path / "own", tmp_path / "other", f"file:{tmp_path / 'store'}"
    repositories.make_repository(own, {"line.toml": slow_line(), "slow.py": SLOW})
    shutil.copy(TASK, own / "model.py")
    repositories.commit(own, {})
    repositories.git(tmp_path, "clone", "--quiet", str(own), str(other))
    sites = [tmp_path / "own.toml", tmp_path / "other.toml"]
    for site in sites:
        site.write_text(f'[store]\nurl = "{url}"\n')
    yield TwoCheckouts(*(Checkout(*each, tmp_path / "config") for each in zip((own, other), sites, strict=True)), url)
    for pid in processes_of(None, tmp_path):
        os.kill(pid, signal.SIGKILL)


@contextmanager
def training(checkouts):
    """A run whose workers have pushed; its driver ends with the block."""
    driver = checkouts.own.start("run")
    try:
        record = until(lambda: next(iter(list_runs(checkouts.store)), None), "a record")
        until(lambda: checkouts.store.list(f"{record.gang_prefix}/parameters/pushes/"), "a push", seconds=150)
        yield driver, record
    finally:
        driver.kill()
        driver.communicate()


def events_of(checkouts):
    return [event.text for event in checkouts.record.events if event.kind == "worker"]


def blocks_by_worker(record):
    return {each["worker"]: each["blocks"] for each in stage(record, "train").outputs["workers"]["workers"]}


def pushed(checkouts, record, worker):
    """Whether the gang of a joined worker says that it has pushed a block."""
    log = checkouts.other.repo / ".gangline" / "gangs" / f"{record.run.id}-t{worker}01"
    return any("block_pushed" in path.read_text() for path in log.rglob("0.jsonl"))


@pytest.mark.timeout(400)
@pytest.mark.long
def test_worker_of_another_checkout_trains_blocks_of_the_run_and_ends_with_it(checkouts):
    with training(checkouts) as (driver, record):
        joined = checkouts.other.start("join", record.run.id)
        until(lambda: pushed(checkouts, record, JOINED), "a push of the joined worker")
        code, log = checkouts.other.call("logs", record.run.id, "--worker", str(JOINED))
        assert (code, "r00│" in log or "no line of these ranks yet" in log) == (0, True)
        code, log = checkouts.own.call("logs", record.run.id, "--worker", str(JOINED))
        assert (code, f"worker {JOINED} joined from" in log) == (2, True)
        said, _ = driver.communicate(timeout=200)
        heard, _ = joined.communicate(timeout=60)
    assert (driver.returncode, joined.returncode) == (0, 0), said + heard
    blocks = blocks_by_worker(checkouts.record)
    assert (sorted(blocks), sum(blocks.values())) == ([1, 2, JOINED], BLOCKS)
    assert events_of(checkouts)[0].startswith(f"worker {JOINED} has joined: ")
    assert events_of(checkouts)[1:] == [f"worker {JOINED}, which had joined, has ended: every block is trained"]
    assert read_joined(checkouts.store, record, JOINED).left is not None
    code, said = checkouts.other.call("join", record.run.id)
    assert (code, "training has ended" in said) == (2, True)
