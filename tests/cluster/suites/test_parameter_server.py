"""A server gang and worker gangs of one run as Jobs of their own, over the cluster's store.

A worker is cut off for a while, a driver is killed, a worker of another checkout joins, a run is cancelled."""

import shutil
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from tests.cluster.driver import driving
from tests.cluster.rig.cut import cut_off
from tests.cluster.rig.places import STORE_PORT
from tests.cluster.rig.wait import await_true
from tests.cluster.workspace import Workspace, site_of
from tests.line import repositories
from tests.line.stages.test_parameter_server import TASK

from gangline.line.record.runs import list_runs
from gangline.signing.keys import signing_key
from gangline.spec.config.site import Site
from gangline.spec.gang.pod_output import parse
from gangline.spec.identity import worker_gang
from gangline.storage.objects.protocol import list_all
from gangline.train.parameters.layout import BlockPush, Head, ParameterKeys, ParameterStore, RowLayout

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

LINE = """\
[project]
name = "apart"
task = "paced:Paced"
[model]
width = 8
layers = 2
[train]
strategy = "parameter_server"
steps = {steps}
global_batch = 8
ranks = 1
[train.compression]
outer_steps = 2
outer_lr = 0.7
kind = "int8"
[train.parameter_server]
workers = 2
grace_seconds = 1
max_age = 1000
max_ahead = 3
[prove]
plan = "off"
"""
PACED = """\
import os, re, time
from model import Tiny

class Paced(Tiny):
    def loss(self, outputs, batch):
        if re.search("-t[0-9]+$", os.environ.get("GANGLINE_GANG", "")):
            time.sleep(0.5)
        return super().loss(outputs, batch)
"""
"""A block takes a second; the gang that evaluates loses no time."""
MAX_AHEAD = 3
CUT, OTHER, JOINED = 1, 2, 3
AWAY_SECONDS = 75.0
"""Longer than a silence that is recorded."""
PATIENCE_SECONDS = 600.0


class Apart:
    """A repository whose line has two workers and a server, a namespace, and the command line of a person."""

    def __init__(self, cluster, image, namespace, folder, *, blocks):
        self.cluster, self.namespace, self.folder = cluster, namespace, folder
        self.repo, self.store, self.blocks = folder / "repo", cluster.store(namespace), blocks
        self.site = site_of(cluster, image, namespace, cpus=0.25)
        repositories.make_repository(self.repo, {"line.toml": LINE.format(steps=blocks), "paced.py": PACED})
        shutil.copy(TASK, self.repo / "model.py")
        repositories.commit(self.repo, {})
        home = folder / "home"
        home.mkdir()
        self.person = Workspace(cluster, self.repo, home, namespace, self.site)

    def start(self, *words):
        """A command in a process of its own."""
        command = [sys.executable, "-m", "gangline", *words]
        return subprocess.Popen(
            command, env=self.person.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    @contextmanager
    def training(self):
        """A driver whose workers have all pushed; it is killed at the end of the block."""
        driver = self.start("run", str(self.repo))
        try:
            await_true("pushes of both workers", lambda: self._both_push(driver), seconds=PATIENCE_SECONDS)
            yield driver
        finally:
            driver.kill()
            driver.communicate()

    def _both_push(self, driver):
        assert driver.poll() is None, driver.stdout.read()[-3000:]
        if not any(list_runs(self.store)):
            return False
        return {push.worker for push in self.pushes()} == {CUT, OTHER}

    @property
    def record(self):
        return next(iter(list_runs(self.store)))

    @property
    def objects(self):
        key = signing_key(Site(), self.person.environ).checkpoint_key(self.record.run.project)
        keys = ParameterKeys(f"{self.record.gang_prefix}/parameters")
        return ParameterStore(self.store, keys, self.record.run.id, key)

    def pushes(self):
        objects = self.objects
        return [objects.read(BlockPush, entry.key)[0] for entry in list_all(self.store, objects.keys.pushes)]

    def heads(self):
        objects = self.objects
        shards = objects.read(RowLayout, objects.keys.layout)[0].shards()
        return [objects.read(Head, objects.keys.head(each.number))[0] for each in shards]

    def gang(self, worker):
        return worker_gang(self.record.run.id, worker)

    def jobs(self):
        """Identity of the Job of each gang that trains."""
        found = self.cluster.read("jobs", "-n", self.namespace, "-l", "gangline/role=train")["items"]
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}

    def address(self, worker):
        """Of the worker's one pod."""
        (pod,) = self.cluster.read("pods", "-n", self.namespace, "-l", f"gangline/gang={self.gang(worker)}")["items"]
        return pod["status"]["podIP"]

    def events(self, worker, name):
        """What the rank of a worker has told its pod's log."""
        lines = self.cluster.kubectl.run(
            "logs", "-n", self.namespace, "-l", f"gangline/gang={self.gang(worker)}", "--tail=-1"
        )
        told = (parse(line).event or {} for line in lines.split("\n"))  # not all ends of lines: records begin with one
        return [each for each in told if each.get("event") == name]


def said_by(process):
    said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    return said[-3000:]


def demand_every_block_counted_once(run):
    assert sorted(push.block for push in run.pushes()) == list(range(run.blocks))
    assert {(head.done.mark, head.done.above, head.dropped, head.refused) for head in run.heads()} == {
        (run.blocks, (), 0, 0)
    }
    assert sum(each.blocks for each in run.record.training.workers.workers) == run.blocks


def texts(record, kind):
    return [event.text for event in record.events if event.kind == kind]


@pytest.fixture(scope="module")
def image(cluster):
    return cluster.train_image


@pytest.fixture
def start(cluster, namespace, image, tmp_path):
    """Makes the repository of a test."""
    with driving(cluster):
        yield lambda blocks: Apart(cluster, image, namespace, tmp_path, blocks=blocks)


@pytest.mark.row("PS2")
def test_worker_that_is_cut_off_trains_ahead_and_every_block_counts_once(cluster, start):
    run = start(blocks=120)
    with run.training() as driver:
        assert run.jobs().keys() == {run.record.run.id, run.gang(CUT), run.gang(OTHER)}
        with cut_off(run.address(CUT), STORE_PORT):
            began, before, others = time.monotonic(), len(run.events(CUT, "block_pushed")), len(run.pushes())
            waits = len(run.events(CUT, "store_silent"))  # a busy machine may have had it wait before
            await_true(
                "a worker that waits", lambda: len(run.events(CUT, "store_silent")) > waits, seconds=AWAY_SECONDS
            )
            ahead = len(run.events(CUT, "block_pushed"))
            assert 0 < ahead - before <= 2 * MAX_AHEAD, "what it has claimed, and what was under way"
            await_true("a long silence", lambda: time.monotonic() - began > AWAY_SECONDS, seconds=2 * AWAY_SECONDS)
            assert len(run.events(CUT, "block_pushed")) == ahead, "it waits"
            assert len(run.pushes()) > others + 5, "the other worker trains on"
        assert driver.wait(PATIENCE_SECONDS) == 0, said_by(driver)
    demand_every_block_counted_once(run)
    record = run.record
    assert (record.run.verdict, texts(record, "worker")) == ("passed", [])
    *_, silent, back = [text for text in texts(record, "trouble") if text.startswith(f"worker {CUT} ")]
    assert silent.startswith(f"worker {CUT} has pushed nothing for 1 min")
    assert back.startswith(f"worker {CUT} pushes again after 1 min")
    assert "the store gave it no answer for 1 min" in back
    without = {each.worker: each.silent_seconds for each in record.training.workers.workers}
    assert without[CUT] > max(AWAY_SECONDS / 2, without[OTHER])
    assert record.ledger.seconds["exchange"] > AWAY_SECONDS / 2
    for worker in (CUT, OTHER):
        assert "r00│" in run.person.ask("logs", record.run.id, "--worker", str(worker), "--repo", str(run.repo))
    run.person.sweep()
    await_true("the end of all gangs", lambda: cluster.leftovers(run.namespace) == [], seconds=60)


@pytest.mark.row("PS2")
def test_driver_that_dies_leaves_its_gangs_to_the_next_and_a_worker_of_another_checkout_joins(start, tmp_path):
    run = start(blocks=400)  # some are left when the worker that joins has started
    with run.training():
        jobs = run.jobs()
    repositories.git(tmp_path, "clone", "--quiet", str(run.repo), "other")
    (tmp_path / "other.toml").write_text(run.site, "utf-8")
    driver = run.start("run", str(run.repo))
    joined = run.start(
        "join", run.record.run.id, "--repo", str(tmp_path / "other"), "--site", str(tmp_path / "other.toml")
    )
    said = said_by(driver), said_by(joined)
    assert (driver.returncode, joined.returncode) == (0, 0), said
    assert run.jobs() == jobs | {run.gang(JOINED): run.jobs()[run.gang(JOINED)]}
    demand_every_block_counted_once(run)
    record = run.record
    assert record.run.verdict == "passed"
    assert [each.worker for each in record.training.workers.workers] == [CUT, OTHER, JOINED]
    came, went = texts(record, "worker")
    assert came.startswith(f"worker {JOINED} has joined: 1 rank at kubernetes")
    assert went == f"worker {JOINED}, which had joined, has ended: every block is trained"
    assert "r00│" in run.person.ask("logs", record.run.id, "--worker", str(JOINED), "--repo", str(run.repo))


def test_cancelled_run_leaves_no_gang(cluster, start):
    run = start(blocks=10_000)
    with run.training() as driver:
        cancelled = run.start("cancel", run.record.run.id, "--repo", str(run.repo))
        said = said_by(cancelled)
        assert (cancelled.returncode, "nothing of it is left running" in said) == (70, True), said
        assert driver.wait(PATIENCE_SECONDS) == 70, said_by(driver)
    assert run.record.run.verdict == "cancelled"
    found = [cluster.read(kind, "-n", run.namespace, "-l", "gangline/gang")["items"] for kind in ("jobs", "pods")]
    assert found == [[], []]
