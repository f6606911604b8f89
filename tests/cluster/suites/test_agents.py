"""Stages called one by one, each from another agent as a Jenkins has them: the gang is found by the run id alone.

An agent has a home and a clone of its own, which are gone with it; the keys that seal records are given, as its pod
mounts them. Agents are processes here, not pods.
"""

import shutil
import subprocess

import pytest
from tests.cluster.suites.test_breaking import Workspace
from tests.jenkins.controller.jenkins import new_key
from tests.line.repositories import commit

from gangline.spec.record import STAGES

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

STILL_RUNNING = 75
DEADLINE_SECONDS = 300.0


class Agents(Workspace):
    """The workspace of a Jenkins: each command from another clone and home."""

    def __init__(self, cluster, namespace, folder):
        super().__init__(cluster, namespace, folder)
        self.top, self.origin, self.number = folder, self.repo, 0
        self.key = new_key("project")
        (folder / "key.pem").write_bytes(self.key.private_pem())
        (folder / "key.pem").chmod(0o440)
        sign = f'[sign]\nkey = "secret:file:{folder}/key.pem"\nidentities = ["{self.key.key_id}"]\n'
        self.site.write_text(self.site.read_text() + sign)
        line = (self.origin / "line.toml").read_text()
        commit(self.origin, {"line.toml": line + '[train.env]\nLONG = "40"\n'}, "long")

    def stage(self, *words):
        """Exit code and output of one stage, from the next agent."""
        self.number += 1
        shutil.rmtree(self.top / f"agent-{self.number - 1}", ignore_errors=True)
        self.folder = self.top / f"agent-{self.number}"
        self.repo = self.folder / "workspace"
        subprocess.run(["git", "clone", "-q", str(self.origin), str(self.repo)], check=True)
        public = self.folder / ".config" / "gangline" / "keys" / f"{self.key.key_id}.pub"
        public.parent.mkdir(parents=True)
        public.write_bytes(self.key.public.pem)
        process = self.start("stage", *words, "--driver", "jenkins")
        said, _ = process.communicate(timeout=DEADLINE_SECONDS)
        return process.returncode, said


def test_each_stage_from_an_agent_of_its_own_finds_the_one_gang(cluster, namespace, tmp_path):
    agents = Agents(cluster, namespace, tmp_path)
    code, said = agents.stage("resolve", "--commit", "HEAD")
    assert code == 0, said
    run = said.strip().splitlines()[-1]
    looks = 0
    for name in STAGES[1:]:
        while (found := agents.stage(name, "--run", run, "--max-seconds", "5"))[0] == STILL_RUNNING:
            looks += name == "train"
            assert looks < 60, found[1][-3000:]
            trained = [each for each in agents.jobs() if each["metadata"]["name"] == run]
            assert name != "train" or len(trained) == 1
        assert found[0] == 0, found[1][-3000:]
    assert looks > 1, "training was seen by several agents"
