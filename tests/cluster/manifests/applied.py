"""The test overlay on a real cluster under names of its own, so that it meets nothing that stands there.

The service and a pipeline's steps have their accounts bound, too; neither runs.
"""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.manifests.rendered import objects

from gangline.launch.kubernetes.client.api import ApiConflict
from gangline.launch.kubernetes.client.auth import ApiSession, sign_in
from gangline.launch.kubernetes.client.client import KubernetesClient, connect
from gangline.launch.kubernetes.client.transport import HttpTransport

PLURALS = {"NetworkPolicy": "networkpolicies", "ValidatingAdmissionPolicy": "validatingadmissionpolicies"}
CALL_SECONDS = 30.0


@dataclass
class Applied:
    kubeconfig: Path
    gangs: str
    """Namespace of gangs."""
    system: str
    admin: KubernetesClient

    def account(self, name: str) -> KubernetesClient:
        """A client that acts as the account `name` of the system namespace, unless it lives elsewhere."""
        home = {"gangline-gang": self.gangs, "pipeline-runner": "kubeflow"}.get(name, self.system)
        user = f"system:serviceaccount:{home}:{name}"
        groups = "system:serviceaccounts"

        def session() -> ApiSession:
            own = sign_in({"KUBECONFIG": str(self.kubeconfig)})
            headers = {"Impersonate-User": user, "Impersonate-Group": groups}
            return replace(own, headers=lambda: {**own.headers(), **headers})

        return KubernetesClient(HttpTransport(session, deadline_seconds=CALL_SECONDS), namespace=self.gangs)


@contextmanager
def applied(kubeconfig: Path) -> Iterator[Applied]:
    """Everything of `rendered/test.yaml`, and who else is bound; gone afterwards, but for the priority classes."""
    word = secrets.token_hex(3)
    admin = connect({"KUBECONFIG": str(kubeconfig)}, deadline_seconds=CALL_SECONDS)
    bound = [each for name in ("serve", "kfp") for each in objects(name) if each["kind"] == "RoleBinding"]
    made = [renamed(each, word) for each in (*objects("test"), *bound)]
    paths = [(collection(each), each) for each in made]
    try:
        for path, body in paths:
            _make(admin, path, body)
        yield Applied(kubeconfig=kubeconfig, gangs=f"gangline-{word}", system=f"gangline-system-{word}", admin=admin)
    finally:
        for path, body in paths:
            if "namespace" not in body["metadata"] and body["kind"] != "PriorityClass":
                admin.delete(f"{path}/{body['metadata']['name']}")


def collection(body: dict[str, Any]) -> str:
    plural = PLURALS.get(body["kind"], f"{body['kind'].lower()}s")
    if body["kind"] == "PriorityClass":
        plural = "priorityclasses"
    root = f"/apis/{body['apiVersion']}" if "/" in body["apiVersion"] else f"/api/{body['apiVersion']}"
    namespace = body["metadata"].get("namespace")
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


def _make(admin: KubernetesClient, path: str, body: dict[str, Any]) -> None:
    try:
        admin.create(path, body)
    except ApiConflict:  # classes of an earlier test, the account that every namespace is born with
        assert body["kind"] in ("PriorityClass", "ServiceAccount"), body


def renamed(body: dict[str, Any], word: str) -> dict[str, Any]:
    """`body` with the namespaces, the marks and the cluster-wide names of this word alone."""
    text = json.dumps(body)
    for name in ("gangline", "gangline-system"):
        text = text.replace(f'"namespace": "{name}"', f'"namespace": "{name}-{word}"')
    text = text.replace('"gangline/gangs": "true"', f'"gangline/gangs": "{word}"')
    new: dict[str, Any] = json.loads(text)
    if "namespace" not in new["metadata"] and new["kind"] != "PriorityClass":
        new["metadata"]["name"] += f"-{word}"
    if new.get("roleRef", {}).get("kind") == "ClusterRole":
        new["roleRef"]["name"] += f"-{word}"
    if "policyName" in new.get("spec", {}):
        new["spec"]["policyName"] += f"-{word}"
    return new
