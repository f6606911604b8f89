"""Cluster components that gangline works with: versions that it was tested with, those installed, and Argo's retries.

The one table of versions: `gangline doctor --cluster` and the guide on cluster setup take it from here.

Kubeflow Pipelines compiles a count and a pause of retries into its workflows and no policy, so that of Argo's defaults
applies. Kubeflow 2.17.0 ships `OnError`: an error of Argo is retried, a task that failed is not.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import yaml

from gangline.errors import ConfigError, UsageError
from gangline.launch.kubernetes.client.api import KubernetesApi, Object
from gangline.spec.versions import is_seen

_TAG = re.compile(r":v?(\d+\.\d+[^@]*)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Component:
    """Software that may run in a cluster, and how to find its version there."""

    name: str
    tested_versions: tuple[str, ...]
    """Versions that gangline was tested with, oldest first."""
    used_for: str
    served: tuple[str, ...] = ()
    """Any of these, `group` or `group/version/plural`, shows that it is installed."""
    places: tuple[str, ...] = ()
    """Deployments of its controller, `namespace/name`; the tag of the image is the version."""

    @property
    def tested_text(self) -> str:
        """The tested versions, for messages."""
        return f"seen: {', '.join(self.tested_versions)}"

    def verdict(self, version: str) -> str:
        """`version`, and whether its release was tested; others may work, too."""
        releases = tuple(".".join(tested_version.split(".")[:2]) for tested_version in self.tested_versions)
        return f"{version} {'ok' if is_seen(version, releases) else 'not seen'} ({self.tested_text})"


KUBERNETES = Component(name="kubernetes", tested_versions=("1.34.4",), used_for="gangs as Indexed Jobs")
COMPONENTS = (
    KUBERNETES,
    Component(
        name="kueue", tested_versions=("0.19.2",), used_for="`launch.queue`; manifests in v1beta2, from 0.15 on",
        served=("kueue.x-k8s.io",), places=("kueue-system/kueue-controller-manager",),
    ),
    Component(
        name="jobset", tested_versions=("0.8.2", "0.12.0"),
        used_for="`launch.launcher = \"jobset\"`, and under Trainer",
        served=("jobset.x-k8s.io",),
        places=("jobset-system/jobset-controller-manager", "kubeflow-system/jobset-controller-manager"),
    ),
    Component(
        name="trainer", tested_versions=("2.0.0", "2.3.0"), used_for="`launch.launcher = \"trainjob\"`",
        served=("trainer.kubeflow.org",), places=("kubeflow-system/kubeflow-trainer-controller-manager",),
    ),
    Component(
        name="pipelines", tested_versions=("2.17.0",), used_for="`--target kfp`",
        served=("pipelines.kubeflow.org", "kubeflow.org/v1beta1/scheduledworkflows"), places=("kubeflow/ml-pipeline",),
    ),
    Component(
        name="argo", tested_versions=("4.0.5",), used_for="what Kubeflow Pipelines runs on", served=("argoproj.io",),
        places=("kubeflow/workflow-controller", "argo/workflow-controller"),
    ),
    Component(
        name="jenkins", tested_versions=("2.446",),
        used_for="the Jenkins library; it is not looked for in a cluster",
    ),
)  # fmt: skip


def installed(api: KubernetesApi) -> Iterable[tuple[Component, str]]:
    """Components that the cluster serves, each with its version; empty if this account cannot read it.

    Raises:
        StorageError: The API server does not answer.
    """
    version = str((api.read("/version") or {}).get("gitVersion", ""))
    yield KUBERNETES, version.removeprefix("v")
    paths = [path for path in (api.read("/openapi/v3") or {}).get("paths", {}) if path.startswith("apis/")]
    groups = {path.split("/")[1] for path in paths}
    for component in COMPONENTS:
        if any(_is_served(api, groups, each) for each in component.served):
            yield component, next(filter(None, (_version(api, place) for place in component.places)), "")


def table() -> str:
    """The tested versions as a Markdown table, for the guide on cluster setup."""
    rows = (
        f"| {component.name} | {', '.join(component.tested_versions)} | {component.used_for} |"
        for component in COMPONENTS
    )
    return "\n".join(["| | seen to work | for |", "|--|--|--|", *rows])


def _is_served(api: KubernetesApi, groups: set[str], name: str) -> bool:
    group, _, kind = name.partition("/")
    if group not in groups or not kind:
        return group in groups
    version, _, plural = kind.partition("/")
    kinds = (api.read(f"/apis/{group}/{version}") or {}).get("resources", ())
    return any(each["name"] == plural for each in kinds)


def _version(api: KubernetesApi, place: str) -> str:
    """Tag of the controller's image; empty if there is none or this account may not read it."""
    namespace, _, name = place.partition("/")
    try:
        found = api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
    except (ConfigError, UsageError):
        return ""
    pod = (((found or {}).get("spec") or {}).get("template") or {}).get("spec") or {}
    tags = (_TAG.search(str(each.get("image", "")).rpartition("/")[2]) for each in pod.get("containers") or ())
    return next((tag[1] for tag in tags if tag), "")


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
