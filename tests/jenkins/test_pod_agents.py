"""A gang outlives the pod of an agent, and the next finds it: another host, an empty home, the commit alone.

Pods of the gang are processes behind the fake API server, with real keepers; an agent has what its pod mounts alone.
"""

import shutil
import subprocess
import time
from dataclasses import replace

import pytest
from tests.contracts.launcher.stands import IMAGE, STORE, FakeStand
from tests.jenkins.controller.jenkins import new_key
from tests.line import repositories

from gangline.errors import StillRunning
from gangline.line.record.runs import find_run
from gangline.line.run import cancel, driver, lease
from gangline.line.stages.run_line import run_line
from gangline.line.stages.run_stage import run_stage
from gangline.spec.config.site import SignTable, Site, StoreTable
from gangline.spec.gang.podset import Resources
from gangline.spec.record import STAGES

PROGRAM = """\
import os, pathlib, time
if os.environ["RANK"] == "0":
    place = pathlib.Path({place!r})
    with (place / "begun").open("a") as begun:
        begun.write(os.environ["GANGLINE_RUN"] + "\\n")
    while not (place / "go").exists():
        time.sleep(0.05)
"""


class Small:
    """The launcher of clusters, whose pods are as small as the fake server's; each agent has one of its own."""

    def __init__(self, launcher):
        self._launcher = launcher

    def __getattr__(self, name):
        return getattr(self._launcher, name)

    def submit(self, podset):
        resources = Resources(cpus=1.0, memory_bytes=2**30, shm_bytes=2**26)
        return self._launcher.submit(replace(podset, image=IMAGE, store=STORE, resources=resources))


class Agents:
    """Of one job: each is a pod of its own, which is gone with its workspace when the next one comes."""

    def __init__(self, folder, origin, stand, monkeypatch):
        self.folder, self.origin, self.monkeypatch, self.number = folder, origin, monkeypatch, 0
        self.key = new_key("project")
        (folder / "key.pem").write_bytes(self.key.private_pem())
        (folder / "key.pem").chmod(0o440)
        sign = SignTable(key=f"secret:file:{folder}/key.pem", identities=(self.key.key_id,))
        self.site = Site(store=StoreTable(url=stand.store.url), sign=sign)
        for module in (driver, cancel):
            monkeypatch.setattr(module, "open_launcher", lambda *_, **__: Small(stand.again()))

    def fresh(self):
        """Folder and environment of the next pod."""
        self.number += 1
        pod = self.folder / f"pod-{self.number}"
        shutil.rmtree(self.folder / f"pod-{self.number - 1}", ignore_errors=True)
        subprocess.run(["git", "clone", "-q", str(self.origin), str(pod / "workspace")], check=True)
        public = pod / ".config" / "gangline" / "keys" / f"{self.key.key_id}.pub"
        public.parent.mkdir(parents=True)
        public.write_bytes(self.key.public.pem)
        self.monkeypatch.setattr(lease.socket, "gethostname", lambda: pod.name)
        self.monkeypatch.setattr(lease, "_process_space", lambda: f"space-{self.number}")
        repositories.settle_inventory(pod / "workspace")
        return pod / "workspace", {"HOME": str(pod)}

    def empty(self):
        """Folder and environment of the next pod, without the commit."""
        workspace, environ = self.fresh()
        shutil.rmtree(workspace)
        workspace.mkdir()
        return workspace, environ

    def stage(self, name, run, **asked):
        repo, environ = self.fresh()
        return run_stage(repo, name, run, site=self.site, environ=environ, kind="jenkins", **asked)


@pytest.fixture
def stand(tmp_path):
    found = FakeStand(tmp_path / "cluster")
    yield found
    (tmp_path / "go").touch()
    found.close()


@pytest.fixture
def agents(tmp_path, stand, monkeypatch):
    program = PROGRAM.format(place=str(tmp_path)) + repositories.PROGRAM
    origin = repositories.make_repository(tmp_path / "origin", {"line.toml": repositories.LINE, "answer.py": program})
    return Agents(tmp_path, origin, stand, monkeypatch)


@pytest.fixture
def run(agents):
    """Of a run whose gang was submitted by an agent that is gone."""
    repo, environ = agents.fresh()
    return run_line(repo, site=agents.site, environ=environ, until="submit").run.id


@pytest.mark.row("C6")
def test_each_stage_in_a_pod_of_its_own_finds_the_gang_and_trains_once(tmp_path, stand, agents, run):
    for _ in range(2):
        with pytest.raises(StillRunning):
            agents.stage("train", run, max_seconds=1.0, follow_seconds=1.0)
    (tmp_path / "go").touch()
    for name in STAGES[STAGES.index("train") :]:
        record = agents.stage(name, run, max_seconds=60.0, follow_seconds=60.0)
    assert (record.run.verdict, record.gang.generations, record.run.driver.kind) == ("passed", 1, "jenkins")
    assert (tmp_path / "begun").read_text().split().count(run) == 1
    assert record.seal.key_id == agents.key.key_id


@pytest.mark.row("C6")
def test_a_pod_that_was_lost_while_it_drove_is_waited_for_and_replaced(tmp_path, stand, agents, run):
    """Its process cannot be asked about from another pod, where the same number is another one: its lease ends."""
    prefix = find_run(stand.store, run).prefix
    agents.fresh()
    held = lease.acquire_lease(stand.store, prefix, holder=lease.this_process(), at_least=10)
    with pytest.raises(StillRunning, match="is driven by process"):
        agents.stage("train", run, max_seconds=0.0, follow_seconds=1.0)
    lease._rewrite(stand.store, prefix, held, replace(held, expires=time.time() + 2.0))
    (tmp_path / "go").touch()
    record = agents.stage("train", run, max_seconds=60.0, follow_seconds=60.0)
    assert record.stages["train"].state == "done"
    assert record.run.driver.token > held.token
    assert (tmp_path / "begun").read_text().split() == [run]


@pytest.mark.row("C6")
def test_a_pod_without_the_commit_stops_the_gang_and_draws_the_report(stand, agents, run):
    """As after a deleted branch: no server gives the commit any more."""
    repo, environ = agents.empty()
    record = cancel.cancel_run(repo, run, site=agents.site, environ=environ, reason="the branch is gone")
    assert (record.run.verdict, record.run.reason) == (
        "cancelled",
        "the branch is gone; what its program saved is not known",
    )
    assert stand.again().status(record.gang.name).state == "ended"
    repo, environ = agents.empty()
    record = run_stage(repo, "report", run, site=agents.site, environ=environ, kind="jenkins")
    assert record.stages["report"].state == "done"
