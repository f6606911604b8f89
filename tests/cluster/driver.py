"""A kubeconfig of the account that drives gangs: it may do what the manifests give it, and nothing else.

No placer runs in the cluster of the tests, so the driver has the placer's rights, too, as the guide says.
"""

import fcntl
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from tests.cluster.cluster import Cluster
from tests.manifests.rendered import named, objects

ACCOUNT, SYSTEM = "gangline-driver", "gangline-system"
TOKEN = ("--duration", "2h")


USERS = Path(tempfile.gettempdir()) / "gangline-test-driver"
"""Locked by those who use the account; names what they have made."""


@contextmanager
def driving(cluster: Cluster) -> Iterator[None]:
    """While the block runs the account is there, with what it may do in the whole cluster.

    Several processes may use it at a time; the last one deletes what any of them has made.
    """
    with USERS.open("a+") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        made = [
            each for each in cluster.kubectl.create_missing(_of_the_cluster()) if "namespace" not in each["metadata"]
        ]
        users.writelines(f"{each['kind']} {each['metadata']['name']}\n" for each in made)
        users.flush()
        try:
            yield
        finally:
            fcntl.flock(users, fcntl.LOCK_UN)
            with suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                users.seek(0)
                for line in users.read().splitlines():
                    cluster.kubectl.run("delete", *line.split(), "--ignore-not-found")
                users.truncate(0)


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
