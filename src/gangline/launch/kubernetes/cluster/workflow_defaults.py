"""Defaults that Argo merges into every workflow of Kubeflow Pipelines; they decide which tasks are tried again.

Kubeflow Pipelines compiles a count and a pause of retries into its workflows and no policy, so that of the
defaults applies. Kubeflow 2.17.0 ships `OnError`: an error of Argo is retried, a task that failed is not.
"""

from dataclasses import dataclass

import yaml

from gangline.launch.kubernetes.client.api import KubernetesApi, Object

NAMESPACE, NAME = "kubeflow", "workflow-controller-configmap"
PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}"
WITHOUT_POLICY = "OnFailure"
"""What Argo does where neither a template nor the defaults name a policy."""


@dataclass(frozen=True, slots=True)
class WorkflowDefaults:
    """Defaults of the workflows of one Argo."""

    retry_policy: str
    """`Always`, `OnFailure`, `OnError` or `OnTransientError`."""

    @property
    def retries_failed_tasks(self) -> bool:
        """Whether a task whose pod failed is tried again: exit code, out of memory, evicted or deleted."""
        return self.retry_policy in ("Always", "OnFailure")

    @property
    def consequence(self) -> str:
        """Clause on what such a policy means for a pipeline."""
        place = f"{NAMESPACE}/{NAME}"
        return f"a task that fails or is evicted ends its pipeline, as {place} has retryPolicy {self.retry_policy}"


def read_workflow_defaults(api: KubernetesApi) -> WorkflowDefaults | None:
    """Defaults of the Argo of Kubeflow Pipelines; None if the cluster has none, or if they cannot be understood.

    Raises:
        ApiForbidden: This account may not read them.
        StorageError: The API server does not answer.
    """
    found = api.get(PATH)
    return None if found is None else parse_workflow_defaults(found)


def parse_workflow_defaults(config_map: Object) -> WorkflowDefaults | None:
    """Defaults in the ConfigMap of a workflow controller; None if they are no YAML of the wanted form."""
    data = config_map.get("data") or {}
    if "config" in data:  # all keys as one text, an older form
        return None
    try:
        defaults = yaml.safe_load(data.get("workflowDefaults") or "")
        for key in ("spec", "templateDefaults", "retryStrategy"):
            defaults = (defaults or {}).get(key)
        return WorkflowDefaults(str((defaults or {}).get("retryPolicy") or WITHOUT_POLICY))
    except (yaml.YAMLError, AttributeError):
        return None
