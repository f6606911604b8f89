"""Rights (RBAC rules) of each account, and whether an access review grants them. The table equals the manifests.

Where a right has names, only objects with these names are meant; `create` has no names.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gangline.launch.kubernetes.client.api import Object

_ROOT = ("create", "get", "list", "watch", "patch", "delete")
TRAINER, JOBSET, KUEUE = "trainer.kubeflow.org", "jobset.x-k8s.io", "kueue.x-k8s.io"
VOLCANO, HYPERNODES = "scheduling.volcano.sh", "topology.volcano.sh"
KAI, KAI_TOPOLOGIES = "scheduling.run.ai", "kai.scheduler"
OPTIONAL_GROUPS = (
    TRAINER, JOBSET, KUEUE, f"visibility.{KUEUE}", VOLCANO, HYPERNODES, KAI, KAI_TOPOLOGIES,
)  # fmt: skip
"""Rights on these are required only where the cluster serves them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Right:
    """Verbs on one resource, as in an RBAC rule."""

    group: str = ""
    resource: str
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """Name as `ResourcePath.resource` has it: `pods/log`, `jobs.batch`."""
        plural, slash, below = self.resource.partition("/")
        return f"{plural}.{self.group}{slash}{below}" if self.group else self.resource


DRIVER = (
    Right(group="batch", resource="jobs", verbs=_ROOT),
    Right(group=TRAINER, resource="trainjobs", verbs=_ROOT),
    Right(group=TRAINER, resource="trainingruntimes", verbs=_ROOT),
    Right(group=JOBSET, resource="jobsets", verbs=_ROOT),
    Right(resource="services", verbs=("create", "patch")),
    Right(group="networking.k8s.io", resource="networkpolicies", verbs=("create", "patch")),
    Right(resource="configmaps", verbs=("create", "get", "patch")),
    Right(resource="secrets", verbs=("create", "update")),
    Right(resource="pods", verbs=("list", "watch", "delete")),
    Right(resource="pods/status", verbs=("patch",)),
    Right(resource="pods/log", verbs=("get",)),
    Right(resource="events", verbs=("list",)),
    Right(resource="resourcequotas", verbs=("list",)),
    Right(resource="serviceaccounts", verbs=("get",), names=("gangline-gang",)),
    Right(group="coordination.k8s.io", resource="leases", verbs=("get",), names=("gangline-placer",)),
    Right(group=KUEUE, resource="workloads", verbs=("list",)),
    Right(group=KUEUE, resource="localqueues", verbs=("list",)),
    Right(group=f"visibility.{KUEUE}", resource="localqueues/pendingworkloads", verbs=("get",)),
    Right(group=VOLCANO, resource="podgroups", verbs=("create", "get", "patch")),
)
"""Rights to submit, follow and cancel gangs, in their namespace.

It has no verb that shows a Secret: get, list, watch, patch, and foreground delete, whose responses hold it."""

READER = (
    Right(resource="nodes", verbs=("get", "list")),
    Right(resource="pods", verbs=("list",)),
    Right(group="scheduling.k8s.io", resource="priorityclasses", verbs=("list",)),
    Right(group=KUEUE, resource="topologies", verbs=("list",)),
    Right(group=KUEUE, resource="resourceflavors", verbs=("get",)),
    Right(group=KUEUE, resource="clusterqueues", verbs=("get",)),
    Right(group=VOLCANO, resource="queues", verbs=("list",)),
    Right(group=HYPERNODES, resource="hypernodes", verbs=("list",)),
    Right(group=KAI, resource="queues", verbs=("list",)),
    Right(group=KAI_TOPOLOGIES, resource="topologies", verbs=("list",)),
    Right(resource="services", verbs=("get",), names=("kubernetes",)),
    Right(group="discovery.k8s.io", resource="endpointslices", verbs=("get",), names=("kubernetes",)),
    Right(
        group="apps", resource="deployments", verbs=("get",),
        names=(
            "jobset-controller-manager", "kubeflow-trainer-controller-manager", "kueue-controller-manager",
            "ml-pipeline", "workflow-controller",
        ),
    ),
)  # fmt: skip
"""Rights in the whole cluster to name the gangs that hold servers; without them no holders are named."""

PLACER = (
    Right(group="batch", resource="jobs", verbs=("list", "patch")),
    Right(group="batch", resource="jobs/status", verbs=("patch",)),
    Right(group=TRAINER, resource="trainjobs", verbs=("list", "patch")),
    Right(group=TRAINER, resource="trainingruntimes", verbs=("get",)),
    Right(group=JOBSET, resource="jobsets", verbs=("list", "patch")),
    Right(resource="pods", verbs=("list", "patch")),
    Right(resource="configmaps", verbs=("create",)),
    Right(resource="configmaps", verbs=("get", "update"), names=("gangline-ledger",)),
    Right(group="coordination.k8s.io", resource="leases", verbs=("create",)),
    Right(group="coordination.k8s.io", resource="leases", verbs=("get", "update"), names=("gangline-placer",)),
)
"""Rights to assign servers to queued gangs, in their namespace; nodes and pods are listed with `PLACER_CLUSTER`."""

SELF_PLACER = tuple(each for each in PLACER if each.resource != "leases")
"""Rights of a driver that places its own gangs where no placer runs: with `DRIVER` and `PLACER_CLUSTER`."""

PLACER_CLUSTER = (
    Right(resource="nodes", verbs=("list",)),
    Right(resource="pods", verbs=("list",)),
)

SWEEPER = (
    Right(group="batch", resource="jobs", verbs=("list", "delete")),
    Right(group=TRAINER, resource="trainjobs", verbs=("list", "delete")),
    Right(group=TRAINER, resource="trainingruntimes", verbs=("list", "delete")),
    Right(group=JOBSET, resource="jobsets", verbs=("list", "delete")),
    Right(resource="configmaps", verbs=("list", "delete")),
    Right(resource="services", verbs=("list", "delete")),
    Right(group="networking.k8s.io", resource="networkpolicies", verbs=("list", "delete")),
    Right(resource="pods", verbs=("list", "delete")),
    Right(group=VOLCANO, resource="podgroups", verbs=("list", "delete")),
)
"""Rights to delete the objects of ended runs, in their namespace; a Secret is deleted with its owner and never
listed."""


def single(rights: Iterable[Right]) -> list[tuple[Right, str, str]]:
    """Each (right, verb, name); the name is empty if the right has no names."""
    return [(right, verb, name) for right in rights for verb in right.verbs for name in right.names or ("",)]


def is_granted(right: Right, verb: str, name: str, rules: Iterable[Object]) -> bool:
    """Whether one of these rules of a SelfSubjectRulesReview or of a Role grants the right."""
    return any(
        _fits(verb, rule.get("verbs"))
        and _fits(right.group, rule.get("apiGroups"))
        and _fits(right.resource, rule.get("resources"))
        and (not rule.get("resourceNames") or name in rule["resourceNames"])
        for rule in rules
    )


def _fits(wanted: str, allowed: list[str] | None) -> bool:
    return wanted in (allowed or ()) or "*" in (allowed or ())
