"""A federation on a cluster: the coordinator is a gang of one rank, and two members are Deployments in namespaces of
their own, from the manifest that the guide shows to their administrators.

The driver has the rights of a driver alone. The coordinator's pod is lost once, as with its server, in the middle.
"""

import copy
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tarfile
from contextlib import suppress
from functools import partial

import pytest
from tests.cluster.driver import driving
from tests.cluster.rig.trouble import Trouble
from tests.cluster.rig.wait import await_true
from tests.cluster.workspace import Workspace, site_of
from tests.flare.federation import ADMIN, TASK, Federation, write_rows
from tests.line.repositories import commit, git
from tests.manifests.rendered import objects

from gangline.launch.kubernetes.client.client import connect
from gangline.launch.kubernetes.lifecycle.cancel import fail_and_delete_pod
from gangline.procfs import environ, with_variable
from gangline.spec.gang.driver_orders import COORDINATOR_KEY
from gangline.spec.record import STAGES

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1500)]

NAMES, PORT, ROUNDS = ("aachen", "bremen"), 8002, 24
LINE = f"""\
[project]
name = "rows"
task = "sums:Sums"
[optimizer.elementwise]
rule = "sgd"
lr = 0.5
[train]
steps = {2 * ROUNDS}
global_batch = 20
[federated]
local_steps = 2
quorum = 2
[publish]
smoke = false
[[gate.quality]]
metric = "accuracy"
better = "higher"
limit = 0.8
"""
SITE = """
[federation]
kit = "secret:k8s:gangline-kit/server.tar"
admin = "secret:k8s:gangline-kit/admin.tar"
members = ["aachen", "bremen"]
image = "{image}"
"""


class Member:
    """A Deployment with a volume of data, in a namespace of its own."""

    def __init__(self, cluster, federation, name, image):
        self.cluster, self.name = cluster, name
        self.namespace = f"gangline-test-member-{name}-{secrets.token_hex(3)}"
        home = federation.folder / name
        write_rows(home / "data", seed=NAMES.index(name))
        (home / "kit").mkdir()
        made = [_placed(each, self.namespace, image) for each in objects("federation-member")]
        cluster.kubectl.apply([each for each in made if each["kind"] == "Namespace"])
        cluster.namespaces.append(self.namespace)
        self.volumes = [_volume(self.namespace, claim, home / claim) for claim in ("kit", "data")]
        _keep_archive(cluster, self.namespace, "kit", {"kit.tar": federation.kits / name}, federation.folder)
        cluster.kubectl.apply([*self.volumes, *(each for each in made if each["kind"] != "Namespace")])

    def ask(self, *words):
        """What a command of the administrator says in the container."""
        return self.cluster.kubectl.run("exec", "-n", self.namespace, "deploy/member", "--", "gangline", *words)

    def approve(self):
        """Approve the offer that waits, once there is one, by the digest that `show` says."""
        waiting = partial(self.ask, "federate", "pending", "--json")
        await_true(f"an offer to {self.name}", lambda: json.loads(waiting()) != [], seconds=120)
        [found] = json.loads(waiting())
        shown = self.ask("federate", "show", found["offer"][:8], "--into", f"/tmp/{found['offer'][:8]}")
        self.ask("federate", "approve", shown.split()[-1])

    def log(self):
        with suppress(Trouble):
            return self.cluster.kubectl.run("logs", "-n", self.namespace, "deploy/member", "--tail=40")
        return f"no log of {self.name}"

    def close(self):
        self.cluster.delete(self.namespace)
        for each in self.volumes:
            name = each["metadata"]["name"]
            self.cluster.kubectl.run("delete", "persistentvolume", name, "--ignore-not-found", "--wait=false")


def _placed(thing, namespace, image):
    """An object of the manifest in that namespace; what a small server cannot give is not asked for."""
    found = copy.deepcopy(thing)
    found["metadata"] |= {"name": namespace} if thing["kind"] == "Namespace" else {"namespace": namespace}
    if thing["kind"] == "Deployment":
        [container] = found["spec"]["template"]["spec"]["containers"]
        container |= {"image": image, "resources": {"requests": {"cpu": "300m", "memory": "1Gi"}}}
    return found


def _volume(namespace, claim, folder):
    return {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"{namespace}-{claim}"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "hostPath": {"path": str(folder), "type": "Directory"}, "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": namespace, "name": claim},
        },
    }  # fmt: skip


def _keep_archive(cluster, namespace, name, kits, scratch):
    """A Secret with an archive of each kit, as an administrator makes it."""
    files = []
    for key, folder in kits.items():
        path = scratch / f"{secrets.token_hex(4)}.tar"
        with tarfile.open(path, "w") as tar:
            tar.add(folder, ".")
        files.append(f"--from-file={key}={path}")
    cluster.kubectl.run("create", "secret", "generic", name, "-n", namespace, *files)


@pytest.fixture
def place(cluster, tmp_path_factory):
    """Folder of the coordinator's site, its namespace and the kits of all."""
    if not cluster.is_own:
        pytest.skip("processes of a pod are killed on the node, which is done to the project's own cluster alone")
    namespace = cluster.namespace("federation")
    folder = tmp_path_factory.mktemp("federation")
    for each in (folder, *folder.parents[:2]):
        each.chmod(0o755)
    yield namespace, Federation(folder, NAMES, server=f"federation.{namespace}.svc", port=PORT)
    if namespace in cluster.namespaces:
        cluster.delete(namespace)


@pytest.fixture
def members(cluster, place):
    _, federation = place
    made = [Member(cluster, federation, name, cluster.federation_image) for name in NAMES]
    yield made
    for each in made:
        each.close()


class Driver:
    """`gangline run` of a person who may drive gangs."""

    def __init__(self, workspace, log):
        self.log = log
        command = [sys.executable, "-m", "gangline", "run", str(workspace.repo), "--target", "kubernetes"]
        with log.open("wb") as out:
            self.process = subprocess.Popen(command, env=workspace.environ, stdout=out, stderr=out)

    def said(self):
        return self.log.read_text(errors="replace")

    def await_said(self, pattern, members, *, seconds):
        def is_said():
            found = re.search(pattern, self.said())
            assert found or self.process.poll() is None, self.said()[-3000:]
            return bool(found)

        try:
            await_true(f"{pattern!r} of the driver", is_said, seconds=seconds)
        except Trouble:
            raise AssertionError("\n".join([self.said()[-3000:], *(each.log() for each in members)])) from None


def lose_pod(cluster, namespace):
    """The pod of the gang is gone as with its server: nobody is asked, and the cluster forgets it."""
    api = connect({"KUBECONFIG": str(cluster.kubeconfig), **os.environ}, namespace=namespace)
    [pod] = api.items(f"/api/v1/namespaces/{namespace}/pods", labels="gangline/gang")[0]
    gang, run = (pod["metadata"]["labels"][f"gangline/{name}"] for name in ("gang", "run"))
    ranks = list(with_variable("GANGLINE_GANG", gang))
    beside = [pid for pid in with_variable("GANGLINE_KITS", "/var/run/gangline/kits")
              if f"/{run}/" in environ(pid).get(COORDINATOR_KEY, "")]  # fmt: skip
    assert ranks
    assert len(beside) > 2, "the first process, the coordinator and NVFlare's server"
    for order in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (*ranks, *beside):
            with suppress(ProcessLookupError):
                os.kill(pid, order)
        if order is signal.SIGSTOP:
            fail_and_delete_pod(api, pod)
    return pod["metadata"]["name"]


@pytest.mark.row("FL6")
def test_a_run_over_members_in_two_namespaces_passes_though_its_pod_is_lost_once(cluster, place, members, tmp_path):
    namespace, federation = place
    kits = {"server.tar": federation.kits / f"federation.{namespace}.svc", "admin.tar": federation.kits / ADMIN}
    _keep_archive(cluster, namespace, "gangline-kit", kits, federation.folder)
    repo, home = tmp_path / "repo", tmp_path / "home"
    for each in (repo, home):
        each.mkdir()
    git(repo, "init", "--quiet", "--initial-branch=main")
    commit(repo, {"sums.py": TASK, "line.toml": LINE}, "rows")
    site = site_of(cluster, cluster.train_image, namespace).replace("cpus = 0.6", "cpus = 0.4")  # there are two
    site += SITE.format(image=cluster.federation_image)
    with driving(cluster):
        mine = Workspace(cluster, repo, home, namespace, site)
        driver = Driver(mine, tmp_path / "driver.log")
        try:
            driver.await_said("is pending", members, seconds=400)
            for each in members:
                each.approve()
            driver.await_said(rf"round ([3-9]|1\d)/{ROUNDS}", members, seconds=400)
            lost = lose_pod(cluster, namespace)
            driver.await_said("PASSED", members, seconds=600)
            assert driver.process.wait(120) == 0
        finally:
            driver.process.kill()
        record = json.loads(mine.ask("show", "--repo", str(repo), "--json"))
        mine.sweep()
    assert [name for name in STAGES if record["stages"][name]["state"] != "done"] == []
    found = record["federated"]
    assert (found["roster"], found["merged"], found["rounds"]) == (2, ROUNDS, ROUNDS)
    assert found["engine"].startswith("nvflare 2.9")
    assert found["repeated"] + found["lost"] <= 1, found
    assert record["gang"]["restarts"] == 1, f"{lost} was replaced"
    await_true("the end of the gang and its Service", lambda: cluster.leftovers(namespace) == [], seconds=60)
