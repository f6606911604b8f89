"""A stand-in for JobSet's CRD, whose own module cannot be had: group, kind and version are JobSet's.

Its `spec` is the schema that Trainer's TrainingRuntime embeds whole, its `status` is open. So the JobSets that Trainer
makes are validated and stored; nothing runs them."""

import copy
from typing import Any

GROUP = "jobset.x-k8s.io"


def jobset_crd(training_runtime_crd: dict[str, Any]) -> dict[str, Any]:
    """From the CRD of TrainingRuntime, as Trainer's manifests have it."""
    version = training_runtime_crd["spec"]["versions"][0]
    runtime = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec = copy.deepcopy(runtime["properties"]["template"]["properties"]["spec"])
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"jobsets.{GROUP}",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/jobset"},
        },
        "spec": {
            "group": GROUP,
            "names": {"kind": "JobSet", "listKind": "JobSetList", "plural": "jobsets", "singular": "jobset"},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1alpha2",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": _object(spec)},
                }
            ],
        },
    }


def _object(spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
