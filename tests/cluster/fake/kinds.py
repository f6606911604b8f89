"""What the fake API server serves: groups, kinds and how they behave. Data only."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Kind:
    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    has_status: bool = False
    """`/status` is a subresource: the object's own path writes no status."""
    has_generation: bool = False
    is_custom: bool = False
    """Of a CRD: lists repeat apiVersion and kind in every item."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified(self) -> str:
        """As refusals name it: `Pod`, `Job.batch`."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def root(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"


def _kind(group: str, version: str, plural: str, kind: str, **how: bool) -> Kind:
    return Kind(group=group, version=version, plural=plural, kind=kind, **how)


_WORK = {"has_status": True, "has_generation": True}

BUILT_IN = (
    _kind("", "v1", "namespaces", "Namespace", namespaced=False, has_status=True),
    _kind("", "v1", "nodes", "Node", namespaced=False, has_status=True),
    _kind("", "v1", "pods", "Pod", has_status=True, has_generation=True),
    _kind("", "v1", "services", "Service", has_status=True),
    _kind("", "v1", "secrets", "Secret"),
    _kind("", "v1", "configmaps", "ConfigMap"),
    _kind("", "v1", "events", "Event"),
    _kind("", "v1", "serviceaccounts", "ServiceAccount"),
    _kind("", "v1", "resourcequotas", "ResourceQuota", has_status=True),
    _kind("batch", "v1", "jobs", "Job", **_WORK),
    _kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", has_generation=True),
    _kind("coordination.k8s.io", "v1", "leases", "Lease"),
    _kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False, has_generation=True),
    _kind("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False),
    _kind("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", namespaced=False),
)
CUSTOM = {
    "trainer": (
        _kind("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob", is_custom=True, **_WORK),
        _kind("trainer.kubeflow.org", "v1alpha1", "trainingruntimes", "TrainingRuntime", is_custom=True),
        _kind(
            "trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime",
            namespaced=False, is_custom=True,
        ),
    ),
    "jobset": (_kind("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", is_custom=True, **_WORK),),
    "kueue": (
        _kind("kueue.x-k8s.io", "v1beta2", "workloads", "Workload", is_custom=True, **_WORK),
        _kind("kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue", is_custom=True, **_WORK),
        _kind("kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue", namespaced=False, is_custom=True, **_WORK),
        _kind("kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", namespaced=False, is_custom=True),
        _kind("kueue.x-k8s.io", "v1beta2", "topologies", "Topology", namespaced=False, is_custom=True),
    ),
    "volcano": (
        _kind("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", is_custom=True, has_generation=True),
        _kind("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False, is_custom=True, **_WORK),
        _kind("topology.volcano.sh", "v1alpha1", "hypernodes", "HyperNode", namespaced=False, is_custom=True),
    ),
    "kai": (
        _kind("scheduling.run.ai", "v2", "queues", "Queue", namespaced=False, is_custom=True, **_WORK),
        _kind("kai.scheduler", "v1alpha1", "topologies", "Topology", namespaced=False, is_custom=True),
    ),
}  # fmt: skip
"""Served on demand, by name of who brings them."""
