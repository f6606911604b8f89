"""What goes wrong with a line on a cluster, through the command line: one sentence, the right code, one training."""

import json
import os
import subprocess
import sys
import time
from urllib.parse import urlsplit

import pytest
import yaml
from tests.line.repositories import commit, git

from gangline.faults.proxy import FaultProxy

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

DEADLINE_SECONDS = 120.0
LINE = """\
[project]
name = "broken"
command = ["python", "wait.py"]
[train]
steps = 1
global_batch = 2
ranks = 2
"""
PROGRAM = """\
import json, os, pathlib, time
out = pathlib.Path(os.environ["GANGLINE_OUT"])
time.sleep(float(os.environ["LONG"]))
row = {"seed": 1, "job": 0, "step": 1, "loss": 1.0, "learning_rate": 0.1, "gradient_norm": 1.0,
       "tokens_per_second": 100.0, "step_seconds": 0.01}
if os.environ["RANK"] == "0":
    (out / "metrics.jsonl").write_text(json.dumps(row))
    (out / "result.json").write_text(json.dumps({"role": "train", "final_step": 1}))
"""


class Workspace:
    """A model repository, a namespace, and the command line of a person at it."""

    def __init__(self, cluster, namespace, folder):
        self.cluster, self.namespace, self.folder = cluster, namespace, folder
        self.repo = folder / "repo"
        self.repo.mkdir()
        git(self.repo, "init", "--quiet", "--initial-branch=main")
        commit(self.repo, {"line.toml": LINE, "wait.py": PROGRAM}, "wait")
        self.site = folder / "site.toml"
        self.write_site()

    def write_site(self, *, launch="", image=None):
        cluster = self.cluster
        self.site.write_text(f"""
[store]
url = "{cluster.store_url}/{self.namespace}"
endpoint = "{cluster.endpoint}"
cluster_endpoint = "{cluster.cluster_endpoint}"
credentials = "secret:env:STORE"
[registry]
base = "{image or cluster.image}"
[launch]
target = "kubernetes"
namespace = "{self.namespace}"
launcher = "job"
{launch}
[pod]
cpus = 0.25
memory_bytes = 256e6
shm_bytes = 64e6
disk_bytes = 200e6
""")

    def start(self, command, *arguments, kubeconfig=None):
        environ = {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            "HOME": str(self.folder), "STORE": self.cluster.credentials, "GANGLINE_SITE": str(self.site),
            "KUBECONFIG": str(kubeconfig or self.cluster.kubeconfig), "PYTHONWARNINGS": "ignore",
        }  # fmt: skip
        return subprocess.Popen(
            [sys.executable, "-m", "gangline", command, *arguments],
            cwd=self.repo, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def run(self, *, long, seed, kubeconfig=None):
        asked = ("--set", f'train.env.LONG="{long}"', "--set", f"train.seed={seed}", "--json")
        return self.start("run", *asked, kubeconfig=kubeconfig)

    def pods(self):
        return self.cluster.read("pods", "-n", self.namespace, "-l", "gangline/gang")["items"]

    def jobs(self):
        return self.cluster.read("jobs", "-n", self.namespace, "-l", "gangline/gang")["items"]

    def until_ready(self, driver):
        """Names of the pods, once their ranks have joined."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            pods = self.pods()
            if len(pods) == 2 and all(_is_ready(pod) for pod in pods):
                return [pod["metadata"]["name"] for pod in pods]
            assert driver.poll() is None, driver.stdout.read()
            assert time.monotonic() < deadline, json.dumps(pods)[:3000]
            time.sleep(0.3)


@pytest.fixture
def workspace(cluster, namespace, tmp_path):
    return Workspace(cluster, namespace, tmp_path)


def _is_ready(pod):
    conditions = pod["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _is_backing_off(pod):
    statuses = pod["status"].get("containerStatuses", ())
    return any(
        each["state"].get("waiting", {}).get("reason") in ("ErrImagePull", "ImagePullBackOff") for each in statuses
    )


def _ended(driver):
    """Exit code and events of a driver that is let go on to its end."""
    text, _ = driver.communicate(timeout=DEADLINE_SECONDS)
    return driver.returncode, _events(text), text


def _events(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"')]


def _final(events):
    return next(each["record"] for each in reversed(events) if each.get("event") == "run_ended")


def test_an_evicted_pod_is_replaced_and_placed_again(workspace):
    driver = workspace.run(long=5, seed=1)
    first, _ = workspace.until_ready(driver)
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": first, "namespace": workspace.namespace},
    }
    path = f"/api/v1/namespaces/{workspace.namespace}/pods/{first}/eviction"
    workspace.cluster.kubectl.run("create", "--raw", path, "-f", "-", feed=json.dumps(eviction))
    code, events, text = _ended(driver)
    assert code == 0, text[-3000:]
    assert len(workspace.jobs()) == 1, "the gang went on, no second one was made"
    assert _final(events)["gang"]["generations"] == 2


def test_an_api_server_behind_a_closed_door_ends_nothing_and_a_second_driver_adopts(workspace, tmp_path):
    config = yaml.safe_load(workspace.cluster.kubeconfig.read_text())
    server = urlsplit(config["clusters"][0]["cluster"]["server"])
    with FaultProxy(server.hostname, server.port) as door:
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{door.port}"
        kubeconfig = tmp_path / "through-a-door"
        kubeconfig.write_text(yaml.safe_dump(config))
        driver = workspace.run(long=15, seed=2, kubeconfig=kubeconfig)
        workspace.until_ready(driver)
        door.shut()
        time.sleep(8.0)
        assert driver.poll() is None, driver.stdout.read()
        driver.kill()
        text, _ = driver.communicate()
    states = [each for each in _events(text) if each.get("kind") == "state"]
    assert states[-1]["status"]["stale_seconds"] > 0, text[-3000:]
    code, events, text = _ended(workspace.run(long=15, seed=2))
    assert code == 0, text[-3000:]
    assert len(workspace.jobs()) == 1
    assert _final(events)["run"]["verdict"] == "passed"


def test_a_queue_that_no_one_serves_is_refused_before_anything_is_made(workspace):
    if workspace.cluster.serves("localqueues.kueue.x-k8s.io"):
        pytest.skip("this cluster has Kueue")
    workspace.write_site(launch='queue = "nobody"')
    code, events, text = _ended(workspace.run(long=0, seed=3))
    assert code == 10, text[-3000:]
    assert "found no Kueue on this cluster" in _final(events)["run"]["reason"]
    assert workspace.jobs() == []


def test_cancel_of_a_gang_whose_image_does_not_come_leaves_nothing(workspace):
    workspace.write_site(image=f"registry.invalid/gangline/runtime@sha256:{'0' * 64}")
    driver = workspace.run(long=0, seed=4)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not any(_is_backing_off(pod) for pod in workspace.pods()):
        assert time.monotonic() < deadline, driver.poll()
        time.sleep(0.3)
    time.sleep(15.0)  # a sentence stands for ten seconds, and the driver looks every three
    run = workspace.jobs()[0]["metadata"]["labels"]["gangline/run"]
    cancelled = workspace.start("cancel", run)
    said, _ = cancelled.communicate(timeout=DEADLINE_SECONDS)
    assert cancelled.returncode == 70
    assert f"{run} cancelled: nothing of it is left running" in said.splitlines()
    code, events, text = _ended(driver)
    assert code == 70, text[-3000:]
    waited = [each for each in events if each.get("kind") == "waiting"]
    assert any("see its network, or the registry in registry.base" in each["text"] for each in waited), text[-3000:]
    assert (workspace.jobs(), workspace.pods()) == ([], [])
