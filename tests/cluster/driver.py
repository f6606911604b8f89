"""A kubeconfig of the account that drives gangs: it may do what the manifests give it, and nothing else.

No placer runs in the cluster of the tests, so the driver has the placer's rights, too, as the guide says.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from tests.cluster.cluster import Cluster
from tests.manifests.rendered import named, objects

ACCOUNT, SYSTEM = "gangline-driver", "gangline-system"
TOKEN = ("--duration", "2h")


@contextmanager
def driving(cluster: Cluster) -> Iterator[None]:
    """While the block runs the account is there, with what it may do in the whole cluster."""
    made = cluster.kubectl.create_missing(_of_the_cluster())
    try:
        yield
    finally:
        for each in [each for each in made if "namespace" not in each["metadata"]]:
            cluster.kubectl.run("delete", each["kind"], each["metadata"]["name"], "--ignore-not-found", "--wait=false")


def kubeconfig(cluster: Cluster, namespace: str, path: Path) -> Path:
    """Of the account, for gangs in `namespace`; written to `path`."""
    cluster.kubectl.apply([_binding("RoleBinding", "gangline-driver-places", "Role", namespace)])
    token = cluster.kubectl.run("create", "token", ACCOUNT, "-n", SYSTEM, *TOKEN).strip()
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"] = [{"name": each["name"], "user": {"token": token}} for each in config["users"]]
    path.write_text(json.dumps(config))
    return path


def _of_the_cluster() -> list[dict[str, Any]]:
    found = objects("test")
    kinds = (
        ("Namespace", SYSTEM), ("ServiceAccount", ACCOUNT), ("ClusterRole", "gangline-reader"),
        ("ClusterRoleBinding", "gangline-reader"), ("ClusterRole", "gangline-placer"),
    )  # fmt: skip
    return [
        *(named(found, kind, name) for kind, name in kinds),
        _binding("ClusterRoleBinding", "gangline-driver-places", "ClusterRole"),
    ]


def _binding(kind: str, name: str, role: str, namespace: str = "") -> dict[str, Any]:
    """The account gets what the placer has."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "gangline"}}
        | ({"namespace": namespace} if namespace else {}),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": "gangline-placer"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SYSTEM}],
    }
