"""Kubeflow Trainer in the test cluster: its own manifests, webhooks and controller, from its Go module.

The stand-in for JobSet's CRD takes the place of JobSet; what Trainer hands on is stored there, and goes no further."""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml
from tests.cluster.images import importing, recipes
from tests.cluster.rig.kubectl import Kubectl
from tests.cluster.rig.trouble import Trouble
from tests.cluster.rig.wait import await_true
from tests.cluster.servers.build import MODULES
from tests.cluster.standins.jobset import jobset_crd

NAMESPACE = "kubeflow-system"
_MODULE = "github.com/kubeflow/trainer/v2"
_MANAGER = "kubeflow-trainer-controller-manager"
_PARTS = ("crds", "manager", "rbac", "webhook")


def install(kubectl: Kubectl) -> None:
    """Returns when the webhooks answer; at once where they do."""
    if _webhook_answers(kubectl):
        return
    image = recipes.trainer()
    importing.ensure(image)
    objects = _render(kubectl, image.reference)
    runtimes = next(each for each in objects if each["metadata"]["name"].startswith("trainingruntimes."))
    crds = [each for each in objects if each["kind"] == "CustomResourceDefinition"]
    kubectl.apply([jobset_crd(runtimes), *crds])
    kubectl.apply(each for each in objects if each["kind"] != "CustomResourceDefinition")
    ready = ("get", "deployment", _MANAGER, "-n", NAMESPACE, "-o", "jsonpath={.status.readyReplicas}")
    await_true("Trainer's controller", lambda: kubectl.holds(*ready, wanted="1"), seconds=90)
    await_true("Trainer's webhooks", lambda: _webhook_answers(kubectl), seconds=30)


def _webhook_answers(kubectl: Kubectl) -> bool:
    """A TrainJob without a runtime is refused by a webhook that works, and by nothing else."""
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "probe", "namespace": "default"},
        "spec": {"runtimeRef": {"name": "no-such-runtime", "kind": "TrainingRuntime"}},
    }
    try:
        kubectl.run("create", "--dry-run=server", "-f", "-", feed=json.dumps(job))
    except Trouble as trouble:
        return "no-such-runtime" in str(trouble)
    return False


def _render(kubectl: Kubectl, image: str) -> list[dict[str, Any]]:
    """The manifests of the module, by kustomize, with our image and a namespace."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for part in _PARTS:
            shutil.copytree(_manifests() / "base" / part, folder / part, copy_function=shutil.copyfile)
        (folder / "kustomization.yaml").write_text(json.dumps(_kustomization(image)))
        text = kubectl.run("kustomize", str(folder))
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    return [space, *(each for each in yaml.safe_load_all(text) if each)]


def _kustomization(image: str) -> dict[str, Any]:
    """As the module's own overlay, but for JobSet and for probes that look soon."""
    name, _, digest = image.partition("@")
    container = "/spec/template/spec/containers/0"
    changes = [
        {"op": "add", "path": f"{container}/imagePullPolicy", "value": "Never"},
        {"op": "replace", "path": f"{container}/readinessProbe/initialDelaySeconds", "value": 0},
        {"op": "replace", "path": f"{container}/readinessProbe/periodSeconds", "value": 1},
    ]
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": NAMESPACE,
        "resources": list(_PARTS),
        "images": [{"name": "ghcr.io/kubeflow/trainer/trainer-controller-manager", "newName": name, "digest": digest}],
        "patches": [{"target": {"kind": "Deployment", "name": _MANAGER}, "patch": json.dumps(changes)}],
        "secretGenerator": [{"name": "kubeflow-trainer-webhook-cert", "options": {"disableNameSuffixHash": True}}],
    }


def _manifests() -> Path:
    """In Go's module cache, which the build of the controller filled."""
    source = next(module.source for module in MODULES if module.name == "trainer")
    told = subprocess.run(
        ["go", "mod", "download", "-json", _MODULE], cwd=source, capture_output=True, text=True, check=False
    )
    if told.returncode:
        raise Trouble(f"the manifests of {_MODULE} are not there: {told.stderr.strip()[-500:]}")
    return Path(json.loads(told.stdout)["Dir"]) / "manifests"
