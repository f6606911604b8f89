"""A gang as plain Kubernetes objects: an Indexed Job and its headless Service, pods under the restricted profile.

Written by hand, so that what the cluster can do is known apart from what our launcher renders."""

import json
import time

PORT = 29500


def submit(cluster, namespace, name, program, *, num_nodes=2, image=None):
    """Create Service and Job; each pod runs `program` with the variables that torch's own rendezvous reads."""
    labels = {"gangline/gang": name, "gangline/run": name}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels, "ports": [{"port": PORT}]},
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": num_nodes,
            "parallelism": num_nodes,
            "backoffLimit": 0,
            "template": {
                "metadata": {"labels": labels},
                "spec": _pod(name, program, num_nodes=num_nodes, image=image or cluster.train_image),
            },
        },
    }
    reported = {"apiVersion": "v1", "kind": "List", "items": [service, job]}
    cluster.kubectl.run("create", "-n", namespace, "-f", "-", feed=json.dumps(reported))


def await_end(cluster, namespace, name, *, seconds=180):
    """Logs of node 0, once the Job is Complete."""
    deadline = time.monotonic() + seconds
    while not (ended := _ended(cluster, namespace, name)):
        assert time.monotonic() < deadline, cluster.kubectl.run("describe", "pods", "-n", namespace)
        time.sleep(0.3)
    logs = cluster.kubectl.run("logs", "-n", namespace, "-l", f"gangline/gang={name}", "--prefix", "--tail=-1")
    assert ended == ["Complete"], logs
    return logs


def _ended(cluster, namespace, name):
    conditions = cluster.read("job", name, "-n", namespace)["status"].get("conditions", ())
    return [each["type"] for each in conditions if each["type"] in ("Complete", "Failed") and each["status"] == "True"]


def _pod(name, program, *, num_nodes, image):
    index = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    values = {
        "WORLD_SIZE": str(num_nodes), "MASTER_ADDR": f"{name}-0.{name}", "MASTER_PORT": str(PORT), "HOME": "/gangline",
        "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    env = [{"name": "RANK", "valueFrom": index}, *({"name": name, "value": value} for name, value in values.items())]
    quantities = {"cpu": "500m", "memory": "1500Mi"}
    mounts = {"home": "/gangline", "tmp": "/tmp", "shm": "/dev/shm"}
    return {
        "serviceAccountName": "gangline-gang",
        "subdomain": name,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 2,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "node",
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["python", "-c", program],
                "env": env,
                "resources": {"requests": quantities, "limits": quantities},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
            }
        ],
        "volumes": [
            {"name": "home", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
        ],
    }
