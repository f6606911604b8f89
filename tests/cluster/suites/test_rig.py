"""The cluster itself: pods run, find each other by name, reach the store, and nothing else."""

import json
import time

import pytest
from tests.cluster.rig.trouble import Trouble

from gangline.storage.s3.run_credentials import scoped_credentials

pytestmark = pytest.mark.cluster

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def pod(name, image, program, **spec):
    container = {"name": "node", "image": image, "command": ["python", "-c", program], "securityContext": RESTRICTED}
    security = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"gangline/run": name}},
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": "gangline-gang",
            "automountServiceAccountToken": False,
            "securityContext": security,
            "containers": [container],
            **spec,
        },
    }


def run(cluster, namespace, object_):
    """Logs of a pod that ended well."""
    cluster.kubectl.run("create", "-n", namespace, "-f", "-", feed=json.dumps(object_))
    name = object_["metadata"]["name"]
    deadline = time.monotonic() + 60
    while (phase := cluster.read("pod", name, "-n", namespace)["status"]["phase"]) in ("Pending", "Running"):
        assert time.monotonic() < deadline, cluster.kubectl.run("describe", "pod", name, "-n", namespace)
        time.sleep(0.2)
    logs = cluster.kubectl.run("logs", name, "-n", namespace)
    assert phase == "Succeeded", logs
    return logs


def test_pod_of_the_small_image_imports_the_keeper_without_torch(cluster, namespace):
    program = "import gangline.keeper.main, sys, os; print(os.getuid(), 'torch' in sys.modules)"
    assert run(cluster, namespace, pod("keeper", cluster.image, program)).split() == ["65532", "False"]


def test_pod_and_driver_see_the_same_store(cluster, namespace):
    store = cluster.store(f"tests/{namespace}")
    store.put("greeting", b"from the driver")
    url, credentials = cluster.store_url_for_pods(f"tests/{namespace}"), cluster.credentials
    program = f"""
from gangline.storage.open import open_store
store = open_store({url!r}, credentials={credentials!r})
store.put("answer", store.get("greeting").data + b", from a pod")
"""
    run(cluster, namespace, pod("store", cluster.image, program))
    assert store.get("answer").data == b"from the driver, from a pod"


def test_credential_of_one_run_is_good_for_its_own_prefix_alone(cluster, namespace):
    place = f"tests/{namespace}"
    lent = scoped_credentials(cluster.store(place), write="runs/p/c/mine/gang")
    assert lent, "the store gives no credentials of a run"
    program = f"""
from gangline.errors import StorageError
from gangline.storage.open import open_store
store = open_store({cluster.store_url_for_pods(place)!r}, credentials={lent.text!r})
store.put("runs/p/c/mine/gang/result", b"1")
try:
    store.put("runs/p/c/mine/result", b"1")
    print("written")
except StorageError:
    print("refused")
"""
    assert run(cluster, namespace, pod("scoped", cluster.image, program)).strip() == "refused"
    assert cluster.store(place).get("runs/p/c/mine/gang/result").data == b"1"
    assert cluster.store(place).get("runs/p/c/mine/result") is None


def test_pod_has_no_way_out(cluster, namespace):
    program = """
import socket
try:
    socket.create_connection(("192.0.2.1", 80), timeout=3)
    print("out")
except OSError as error:
    print("kept in")
"""
    assert run(cluster, namespace, pod("out", cluster.image, program)).strip() == "kept in"


def test_pod_that_asks_for_privileges_is_refused(cluster, namespace):
    wish = pod("privileged", cluster.image, "pass")
    wish["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    with pytest.raises(Trouble, match="violates PodSecurity"):
        cluster.kubectl.run("create", "-n", namespace, "-f", "-", feed=json.dumps(wish))
