"""Kueue in the test cluster: its own manifests, webhooks and controller, from its Go module.

A cluster that serves queues starts gangs in another way, so whoever wants Kueue has it for a while: `lent`.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from tests.cluster.images import recipes
from tests.cluster.operators import module
from tests.cluster.rig.kubectl import Kubectl
from tests.cluster.rig.trouble import Trouble
from tests.cluster.rig.wait import await_true

NAMESPACE = "kueue-system"
_MODULE = "sigs.k8s.io/kueue"
_PUBLISHED = "us-central1-docker.pkg.dev/k8s-staging-images/kueue/kueue"
_MANAGER = "kueue-controller-manager"
_GONE_SECONDS = 90


@contextmanager
def lent(kubectl: Kubectl) -> Iterator[None]:
    """Kueue whose webhooks answer; gone afterwards, with all of its kinds."""
    objects = _objects(kubectl)
    try:
        module.install(kubectl, recipes.kueue(), objects, deployment=_MANAGER, namespace=NAMESPACE)
        await_true("Kueue's webhooks", lambda: _webhook_answers(kubectl), seconds=60)
        yield
    finally:
        _remove(kubectl, objects)


@contextmanager
def kinds(kubectl: Kubectl) -> Iterator[None]:
    """Its kinds alone, without a controller or conversions; gone afterwards."""
    folder = module.manifests(_MODULE) / "config" / "components" / "crd" / "bases"
    definitions = [_read(path) for path in sorted(folder.glob("*.yaml"))]
    try:
        kubectl.apply(definitions)
        served = ("wait", "--for=condition=Established", "--timeout=60s")
        kubectl.run(*served, *(f"crd/{each['metadata']['name']}" for each in definitions))
        yield
    finally:
        _delete(kubectl, definitions)


def _objects(kubectl: Kubectl) -> list[module.Object]:
    container = "/spec/template/spec/containers/0"
    kustomization = {
        "resources": ["config/default"],
        "images": [module.replaced_image(_PUBLISHED, recipes.kueue())],
        "patches": [
            module.patched_deployment(_MANAGER, {"op": "remove", "path": f"{container}/command"}),
        ],
    }
    return module.kustomized(kubectl, module.manifests(_MODULE), ("config",), kustomization)


def _webhook_answers(kubectl: Kubectl) -> bool:
    """The finalizer of a flavor that has none is theirs."""
    probe = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "probe"}}
    try:
        reported = kubectl.run("create", "--dry-run=server", "-o", "json", "-f", "-", feed=json.dumps(probe))
    except Trouble:
        return False
    return bool(json.loads(reported)["metadata"].get("finalizers"))


def _remove(kubectl: Kubectl, objects: list[module.Object]) -> None:
    """Definitions go first: the controller takes the finalizers off what is left of them."""
    definitions = [each for each in objects if each["kind"] == "CustomResourceDefinition"]
    _delete(kubectl, definitions)
    _delete(kubectl, [each for each in objects if each not in definitions])


def _delete(kubectl: Kubectl, objects: list[module.Object]) -> None:
    reported = {"apiVersion": "v1", "kind": "List", "items": objects}
    words = ("delete", "--ignore-not-found", "--wait=true", f"--timeout={_GONE_SECONDS}s", "-f", "-")
    kubectl.run(*words, feed=json.dumps(reported))


def _read(path: Path) -> module.Object:
    found: module.Object = yaml.safe_load(path.read_text("utf-8"))
    return found
