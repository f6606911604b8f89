"""The manifests of a Go module whose controller we built: copied out of Go's cache, built by kustomize, applied."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from tests.cluster.images import importing
from tests.cluster.images.archive import Image
from tests.cluster.rig.kubectl import Kubectl
from tests.cluster.rig.trouble import Trouble
from tests.cluster.rig.wait import await_true
from tests.cluster.servers.build import MODULES

Object = dict[str, Any]
_READY_SECONDS = 90


def manifests(module: str) -> Path:
    """Folder of `module` in Go's module cache, which its build filled; raises `Trouble`."""
    source = next(each.source for each in MODULES if each.name == "operators")
    reported = subprocess.run(
        ["go", "mod", "download", "-json", module], cwd=source, capture_output=True, text=True, check=False
    )
    if reported.returncode:
        raise Trouble(f"the manifests of {module} are not there: {reported.stderr.strip()[-500:]}")
    return Path(json.loads(reported.stdout)["Dir"])


def kustomized(kubectl: Kubectl, folder: Path, parts: Iterable[str], kustomization: Object) -> list[Object]:
    """What `kustomization` makes of these folders below `folder`."""
    with tempfile.TemporaryDirectory() as scratch:
        for part in parts:
            shutil.copytree(folder / part, Path(scratch) / part, copy_function=shutil.copyfile)
        reported = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", **kustomization}
        (Path(scratch) / "kustomization.yaml").write_text(json.dumps(reported))
        return [each for each in yaml.safe_load_all(kubectl.run("kustomize", scratch)) if each]


def replaced_image(published: str, image: Image) -> Object:
    """For `images`: ours, by digest, where the manifests name `published`."""
    name, _, digest = image.reference.partition("@")
    return {"name": published, "newName": name, "digest": digest}


def patched_deployment(name: str, *more: Object) -> Object:
    """For `patches`: nobody could pull the image, probes look soon, and a small machine has room left; with `more`."""
    container = "/spec/template/spec/containers/0"
    changes = [
        {"op": "add", "path": f"{container}/imagePullPolicy", "value": "Never"},
        {"op": "replace", "path": f"{container}/readinessProbe/initialDelaySeconds", "value": 0},
        {"op": "replace", "path": f"{container}/readinessProbe/periodSeconds", "value": 1},
        {"op": "add", "path": f"{container}/resources", "value": {"requests": {"cpu": "20m", "memory": "64Mi"}}},
        *more,
    ]
    return {"target": {"kind": "Deployment", "name": name}, "patch": json.dumps(changes)}


def install(kubectl: Kubectl, image: Image, objects: list[Object], *, deployment: str, namespace: str) -> None:
    """Returns when the controller is ready."""
    importing.ensure(image)
    kubectl.apply(each for each in objects if each["kind"] in ("CustomResourceDefinition", "Namespace"))
    kubectl.apply(each for each in objects if each["kind"] not in ("CustomResourceDefinition", "Namespace"))
    ready = ("get", "deployment", deployment, "-n", namespace, "-o", "jsonpath={.status.readyReplicas}")
    await_true(f"{deployment} in {namespace}", lambda: kubectl.holds(*ready, wanted="1"), seconds=_READY_SECONDS)
