"""Cluster components that gangline works with: the versions it was tested with, and those that are installed.

The one table of versions: `gangline doctor --cluster` and the guide on cluster setup take it from here.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gangline.errors import ConfigError, UsageError
from gangline.launch.kubernetes.client.api import KubernetesApi
from gangline.spec.versions import is_seen

_TAG = re.compile(r":v?(\d+\.\d+[^@]*)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Component:
    name: str
    seen: tuple[str, ...]
    """Versions that it was seen to work with, oldest first."""
    used_for: str
    served: tuple[str, ...] = ()
    """Any of these, as `group` or `group/version/plural`, shows that it is installed."""
    places: tuple[str, ...] = ()
    """Where its own manifests put the controller, `namespace/deployment`: its image's tag is its version."""

    @property
    def seen_text(self) -> str:
        return f"seen: {', '.join(self.seen)}"

    def judged(self, version: str) -> str:
        """`version`, and whether its release was seen to work; others may well work."""
        releases = tuple(".".join(each.split(".")[:2]) for each in self.seen)
        return f"{version} {'ok' if is_seen(version, releases) else 'not seen'} ({self.seen_text})"


KUBERNETES = Component(name="kubernetes", seen=("1.34.4",), used_for="gangs as Indexed Jobs")
COMPONENTS = (
    KUBERNETES,
    Component(
        name="kueue", seen=("0.19.2",), used_for="`launch.queue`; manifests in v1beta2, from 0.15 on",
        served=("kueue.x-k8s.io",), places=("kueue-system/kueue-controller-manager",),
    ),
    Component(
        name="jobset", seen=("0.8.2", "0.12.0"), used_for="`launch.launcher = \"jobset\"`, and under Trainer",
        served=("jobset.x-k8s.io",),
        places=("jobset-system/jobset-controller-manager", "kubeflow-system/jobset-controller-manager"),
    ),
    Component(
        name="trainer", seen=("2.0.0", "2.3.0"), used_for="`launch.launcher = \"trainjob\"`",
        served=("trainer.kubeflow.org",), places=("kubeflow-system/kubeflow-trainer-controller-manager",),
    ),
    Component(
        name="pipelines", seen=("2.17.0",), used_for="`--target kfp`",
        served=("pipelines.kubeflow.org", "kubeflow.org/v1beta1/scheduledworkflows"), places=("kubeflow/ml-pipeline",),
    ),
    Component(
        name="argo", seen=("4.0.5",), used_for="what Kubeflow Pipelines runs on", served=("argoproj.io",),
        places=("kubeflow/workflow-controller", "argo/workflow-controller"),
    ),
    Component(name="jenkins", seen=("2.446",), used_for="the Jenkins library; it is not looked for in a cluster"),
)  # fmt: skip


def installed(api: KubernetesApi) -> Iterable[tuple[Component, str]]:
    """Components that the cluster serves, each with its version; an empty one where this account cannot see it.

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
    """Markdown, for the guide."""
    rows = (f"| {each.name} | {', '.join(each.seen)} | {each.used_for} |" for each in COMPONENTS)
    return "\n".join(["| | seen to work | for |", "|--|--|--|", *rows])


def _is_served(api: KubernetesApi, groups: set[str], name: str) -> bool:
    group, _, kind = name.partition("/")
    if group not in groups or not kind:
        return group in groups
    version, _, plural = kind.partition("/")
    kinds = (api.read(f"/apis/{group}/{version}") or {}).get("resources", ())
    return any(each["name"] == plural for each in kinds)


def _version(api: KubernetesApi, place: str) -> str:
    """By the tag of the controller's image; empty where there is none, or none that this account may see."""
    namespace, _, name = place.partition("/")
    try:
        found = api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
    except (ConfigError, UsageError):
        return ""
    pod = (((found or {}).get("spec") or {}).get("template") or {}).get("spec") or {}
    tags = (_TAG.search(str(each.get("image", "")).rpartition("/")[2]) for each in pod.get("containers") or ())
    return next((tag[1] for tag in tags if tag), "")
