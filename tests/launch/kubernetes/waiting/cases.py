"""Gangs that wait, as a cluster can be made to hold them: what `record` submits to see what a real server says."""

from typing import Any

PAUSE = "rig.local/pause:1"
REGISTRY = "127.0.0.1:5099"
"""Where `record` answers as a registry that refuses."""


def job(name: str, *, num_nodes: int = 1, spec: dict[str, Any] | None = None, container: dict[str, Any] | None = None):
    """A root as a gang has it, with changes to the pod and its container."""
    labels = {"gangline/gang": name, "gangline/run": name, "app.kubernetes.io/managed-by": "gangline"}
    node = {
        "name": "node",
        "image": PAUSE,
        "imagePullPolicy": "Never",
        "resources": {"requests": {"cpu": "10m"}, "limits": {"cpu": "10m"}},
    }
    pod = {
        "restartPolicy": "Never",
        "subdomain": name,
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [node | (container or {})],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": num_nodes,
            "parallelism": num_nodes,
            "backoffLimit": 0,
            "template": {"metadata": {"labels": labels}, "spec": pod | (spec or {})},
        },
    }


def resources(**wanted: str) -> dict[str, Any]:
    named = {name.replace("__", "/").replace("_", "-"): value for name, value in wanted.items()}
    return {"resources": {"requests": named, "limits": named}}


def pulled(image: str, policy: str = "Always") -> dict[str, Any]:
    return {"image": image, "imagePullPolicy": policy}


def mounted(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "inputs", **source}]}


MOUNT = {"volumeMounts": [{"name": "inputs", "mountPath": "/inputs"}]}
AFFINITY = {"requiredDuringSchedulingIgnoredDuringExecution": [
    {"labelSelector": {"matchLabels": {"app": "nobody"}}, "topologyKey": "kubernetes.io/hostname"}
]}  # fmt: skip
APART = {"requiredDuringSchedulingIgnoredDuringExecution": [
    {"labelSelector": {"matchLabels": {"gangline/gang": "apart"}}, "topologyKey": "kubernetes.io/hostname"}
]}  # fmt: skip

PLAIN = {
    "cpu": job("cpu", num_nodes=2, container=resources(cpu="64")),
    "memory": job("memory", container=resources(memory="900Gi")),
    "gpu": job("gpu", num_nodes=2, container={"resources": {"limits": {"nvidia.com/gpu": "8"}}}),
    "disk": job("disk", container=resources(ephemeral_storage="90Ti")),
    "several": job("several", container=resources(cpu="64", memory="900Gi")),
    "selector": job("selector", spec={"nodeSelector": {"pool": "h200"}}),
    "affinity": job("affinity", spec={"affinity": {"podAffinity": AFFINITY}}),
    "apart": job("apart", num_nodes=2, spec={"affinity": {"podAntiAffinity": APART}}),
    "gated": job("gated", num_nodes=3, spec={"schedulingGates": [{"name": "gangline/placement"}]}),
    "claim": job("claim", spec=mounted(persistentVolumeClaim={"claimName": "nothing"}), container=MOUNT),
    "suspended": job("suspended") | {},
    "never-pull": job("never-pull", container={"image": "rig.local/nothing:1"}),
    "bad-name": job("bad-name", container=pulled("Rig.Local/UPPER@@1")),
    "no-registry": job("no-registry", container=pulled("registry.invalid/gangline/runtime:1")),
    "registry-down": job("registry-down", container=pulled("127.0.0.1:5098/gangline/runtime:1")),
    "not-found": job("not-found", num_nodes=2, container=pulled(f"{REGISTRY}/missing/runtime:1")),
    "not-found-digest": job("not-found-digest", container=pulled(f"{REGISTRY}/missing/runtime@sha256:{'0' * 64}")),
    "forbidden": job("forbidden", container=pulled(f"{REGISTRY}/forbidden/runtime:1")),
    "unauthorized": job("unauthorized", container=pulled(f"{REGISTRY}/unauthorized/runtime:1")),
    "too-many": job("too-many", container=pulled(f"{REGISTRY}/toomany/runtime:1")),
    "registry-broken": job("registry-broken", container=pulled(f"{REGISTRY}/broken/runtime:1")),
    "registry-slow": job("registry-slow", num_nodes=2, container=pulled(f"{REGISTRY}/slow/runtime:1")),
    "secret-env": job(
        "secret-env", container={"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "x"}}}]}
    ),
    "config-env": job(
        "config-env",
        container={"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "words", "key": "x"}}}]},
    ),
    "root-user": job("root-user", container={"securityContext": {"runAsNonRoot": True, "runAsUser": 0}}),
    "secret-volume": job("secret-volume", spec=mounted(secret={"secretName": "keys"}), container=MOUNT),
    "config-volume": job("config-volume", spec=mounted(configMap={"name": "words"}), container=MOUNT),
    "host-path": job(
        "host-path", spec=mounted(hostPath={"path": "/nowhere/at-all", "type": "Directory"}), container=MOUNT
    ),
    "nfs": job("nfs", spec=mounted(nfs={"server": "127.0.0.1", "path": "/nothing"}), container=MOUNT),
    "sandbox": job("sandbox", spec={"runtimeClassName": "gangline-nowhere"}),
    "no-command": job("no-command", container={"command": ["/nothing"]}),
    "not-ready": job(
        "not-ready", num_nodes=2, container={"readinessProbe": {"tcpSocket": {"port": 29502}, "periodSeconds": 1}}
    ),
    "no-account": job("no-account", spec={"serviceAccountName": "nobody"}),
    "no-priority": job("no-priority", spec={"priorityClassName": "gangline-nothing"}),
    "no-runtime-class": job("no-runtime-class", spec={"runtimeClassName": "nothing"}),
    "silent-server": job(
        "silent-server",
        spec={"nodeName": "d-silent", "tolerations": [{"operator": "Exists"}], "terminationGracePeriodSeconds": 1},
    ),
    "tainted": job("tainted", spec={"nodeSelector": {"kubernetes.io/hostname": "d-silent"}}),
}
PLAIN["suspended"]["spec"]["suspend"] = True

ELSEWHERE = {
    "quota": ("d-quota", job("quota", num_nodes=4, container=resources(cpu="100m"))),
    "quota-holder": ("d-quota", job("holder", num_nodes=2, container=resources(cpu="100m"))),
    "quota-never": ("d-quota", job("quota-never", container=resources(cpu="2"))),
    "quota-missing-limits": ("d-quota", job("quota-missing-limits", container={"resources": {}})),
    "limit-range": ("d-limits", job("limit-range", container=resources(cpu="100m"))),
    "pod-security": ("d-restricted", job("pod-security", spec={"hostNetwork": True})),
    "policy": ("d-policy", job("policy")),
    "webhook-dead": ("d-webhook", job("webhook-dead")),
}
