"""Records what a real cluster says of gangs that wait: `python -m tests.launch.kubernetes.waiting.record`.

Needs KUBECONFIG and `kubectl`, and a cluster of one's own: it makes namespaces, a node object that nobody serves and
admission rules, and deletes them. `GANGLINE_INSIDE` is a command that runs its arguments where the container runtime
pulls images (a network namespace); without it the registry's refusals are not recorded.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.launch.kubernetes.waiting.cases import ELSEWHERE, PLAIN, REGISTRY

HERE = Path(__file__).parent
SNAPSHOTS = HERE / "snapshots"
NAMESPACE = "d-wait"
SECONDS = 100
"""Until kubelets gave up pulling once and mounting once, and the silent server is missed."""


def main(*only: str) -> None:
    names = set(only)
    registry = start_registry()
    try:
        make_surroundings()
        for body in PLAIN.values():
            apply(body, NAMESPACE)
        for name in ("quota-holder", *ELSEWHERE):
            namespace, body = ELSEWHERE[name]
            apply(body, namespace)
            time.sleep(1)
        time.sleep(SECONDS)
        for name, body in PLAIN.items():
            keep(name, body, NAMESPACE, names)
        for name, (namespace, body) in ELSEWHERE.items():
            if name != "quota-holder":
                keep(name, body, namespace, names)
    finally:
        clean()
        if registry is not None:
            registry.terminate()
            registry.wait()


def kubectl(*arguments: str, body: Any = None) -> str:
    text = None if body is None else json.dumps(body)
    done = subprocess.run(["kubectl", *arguments], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr.strip(), file=sys.stderr)
    return done.stdout


def apply(body: Any, namespace: str = "") -> None:
    kubectl("apply", "-f", "-", *(("-n", namespace) if namespace else ()), body=body)


def start_registry() -> "subprocess.Popen[bytes] | None":
    inside = shlex.split(os.environ.get("GANGLINE_INSIDE", ""))
    port = REGISTRY.rpartition(":")[2]
    if not inside:
        return None
    return subprocess.Popen([*inside, sys.executable, str(HERE / "registry_that_refuses.py"), port])


def named(kind: str, name: str, version: str = "v1", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, **fields.pop("metadata", {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def make_surroundings() -> None:
    for name, labels in (
        (NAMESPACE, {}),
        ("d-quota", {}),
        ("d-limits", {}),
        ("d-restricted", {"pod-security.kubernetes.io/enforce": "restricted"}),
        ("d-policy", {"d-policy": "yes"}),
        ("d-webhook", {"d-webhook": "yes"}),
    ):
        apply(named("Namespace", name, metadata={"labels": labels}))
    apply(named("ResourceQuota", "team", spec={"hard": {"requests.cpu": "500m", "pods": "10"}}), "d-quota")
    limit = {"type": "Container", "max": {"cpu": "50m"}, "default": {"cpu": "50m"}}
    apply(named("LimitRange", "small", spec={"limits": [limit]}), "d-limits")
    apply(named("RuntimeClass", "gangline-nowhere", "node.k8s.io/v1", handler="nowhere"))
    apply(
        named(
            "Node",
            "d-silent",
            metadata={"labels": {"kubernetes.io/hostname": "d-silent"}},
            spec={"taints": [{"key": "pool", "value": "others", "effect": "NoSchedule"}], "unschedulable": True},
        )
    )
    make_admission_rules()
    time.sleep(3)


def make_admission_rules() -> None:
    match = {
        "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
    }
    admission = "admissionregistration.k8s.io/v1"
    rule = {
        "expression": "object.spec.containers.all(c, c.image.contains('@sha256:'))",
        "message": "image by digest, please",
    }
    apply(
        named(
            "ValidatingAdmissionPolicy",
            "d-digest",
            admission,
            spec={"matchConstraints": match, "validations": [rule], "failurePolicy": "Fail"},
        )
    )
    where = {"namespaceSelector": {"matchLabels": {"d-policy": "yes"}}}
    apply(
        named(
            "ValidatingAdmissionPolicyBinding",
            "d-digest",
            admission,
            spec={"policyName": "d-digest", "validationActions": ["Deny"], "matchResources": where},
        )
    )
    hook = {
        "name": "pods.d.example",
        "clientConfig": {"service": {"name": "nobody", "namespace": "d-webhook", "path": "/"}},
        "rules": match["resourceRules"],
        "namespaceSelector": {"matchLabels": {"d-webhook": "yes"}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    apply(named("ValidatingWebhookConfiguration", "d-webhook", admission, webhooks=[hook]))


def keep(name: str, body: dict[str, Any], namespace: str, only: set[str]) -> None:
    """Write the snapshot of one gang; what was expected of it before stays."""
    if only and name not in only:
        return
    path = SNAPSHOTS / f"{name}.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    gang = body["metadata"]["name"]
    root = json.loads(kubectl("get", "job", gang, "-n", namespace, "-o", "json") or "null")
    pods = items("pods", namespace)
    mine = [pod for pod in pods if pod["metadata"]["labels"].get("gangline/gang") == gang]
    servers = {pod["spec"].get("nodeName") for pod in mine}
    about = {gang, *(pod["metadata"]["name"] for pod in mine)}
    kept = {
        "recorded": True,
        "server": json.loads(kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"],
        "now": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "root": slim_root(root),
        "pods": [slim_pod(pod) for pod in mine],
        "others": [slim_pod(pod) for pod in pods if pod not in mine] if namespace == "d-quota" else [],
        "events": slim_events([each for each in items("events", namespace) if each["involvedObject"]["name"] in about]),
        "nodes": [slim_node(each) for each in items("nodes", namespace) if each["metadata"]["name"] in servers],
        "workload": None,
        "expect": before.get("expect"),
    }
    text = json.dumps(kept, indent=1, sort_keys=True, ensure_ascii=False)
    path.write_text(re.sub(r"/[^ \"]*/kubelet/pods/", "/var/lib/kubelet/pods/", text) + "\n")


def items(kind: str, namespace: str) -> list[dict[str, Any]]:
    return json.loads(kubectl("get", kind, "-n", namespace, "-o", "json"))["items"]


def slim_events(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last of each reason an object."""
    read = ("involvedObject", "reason", "message", "lastTimestamp", "eventTime", "series", "type", "count")
    last = {
        (event["involvedObject"]["name"], event["reason"]): {key: event[key] for key in read if key in event}
        for event in sorted(events, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")
    }
    return list(last.values())


def slim_root(root: dict[str, Any]) -> dict[str, Any]:
    spec = {key: value for key, value in root["spec"].items() if key != "template"}
    return slim(root) | {"spec": spec}


def slim_pod(pod: dict[str, Any]) -> dict[str, Any]:
    spec = {key: pod["spec"][key] for key in ("nodeName", "schedulingGates") if key in pod["spec"]}
    read = ("name", "image", "resources")
    containers = [{key: each[key] for key in read if key in each} for each in pod["spec"]["containers"]]
    return slim(pod) | {"spec": spec | {"containers": containers}}


def slim_node(node: dict[str, Any]) -> dict[str, Any]:
    conditions = node["status"].get("conditions", [])
    return {"metadata": {"name": node["metadata"]["name"]}, "status": {"conditions": conditions}}


def slim(value: dict[str, Any]) -> dict[str, Any]:
    """Without what nobody reads: who managed which field, addresses."""
    metadata = {key: each for key, each in value["metadata"].items() if key not in ("managedFields", "annotations")}
    annotations = value["metadata"].get("annotations", {})
    metadata["annotations"] = {key: each for key, each in annotations.items() if not key.startswith("kubectl")}
    addresses = ("hostIP", "hostIPs", "podIP", "podIPs")
    status = {key: each for key, each in value.get("status", {}).items() if key not in addresses}
    return value | {"metadata": metadata} | ({"status": status} if "status" in value else {})


def clean() -> None:
    for kind, name in (
        ("validatingadmissionpolicybinding", "d-digest"),
        ("validatingadmissionpolicy", "d-digest"),
        ("validatingwebhookconfiguration", "d-webhook"),
        ("runtimeclass", "gangline-nowhere"),
    ):
        kubectl("delete", kind, name, "--ignore-not-found")
    kubectl("delete", "pods", "--all", "-n", NAMESPACE, "--force", "--grace-period=0")
    kubectl("delete", "node", "d-silent", "--ignore-not-found")
    for name in (NAMESPACE, "d-quota", "d-limits", "d-restricted", "d-policy", "d-webhook"):
        kubectl("delete", "namespace", name, "--ignore-not-found", "--wait=false")


if __name__ == "__main__":
    main(*sys.argv[1:])
