"""Names in a gang's objects: labels, annotations, gates, conditions, containers, paths of collections."""

from datetime import UTC, datetime

from gangline.launch.kubernetes.client.api import Object

CONTAINER = "node"
"""Name of the container of every pod; Kubeflow Trainer looks for this name."""
COORDINATOR = "coordinator"
"""Name of the container that has the kits of a federation; `manifests/base/cluster/admission.yaml` knows it."""
CHILD = "node"
"""Name of the only replicated Job of a JobSet; part of the names of its Job and pods."""
DEADLINE = "GANGLINE_DEADLINE_SECONDS"
"""Environment variable of keepers: time limit of the gang, from their start."""
DISRUPTION = "DisruptionTarget"
"""Condition of a pod that the platform evicted or preempted."""

RUN, GANG, PROJECT = "gangline/run", "gangline/gang", "gangline/project"
COMMIT, ROLE, MANAGED_BY = "gangline/commit", "gangline/role", "app.kubernetes.io/managed-by"
MODULE_ROLE = "once"
"""Role of a Job that runs one module of model code, no gang."""
MODEL = "gangline/model"
"""Label of servers, with VERSION as that of the model."""
PODSET, SPEC, END, VERSION = "gangline/podset", "gangline/spec", "gangline/end", "gangline/version"
WAITS, QUEUED, SERVERS, CANCELLED = "gangline/waits", "gangline/queued", "gangline/servers", "gangline/cancelled"
GROUPS, STARTS_NOW = "gangline/groups", "gangline/starts-now"
PLACEMENT_GATE = "gangline/placement"
POOL = "gangline/pool"
"""Label and taint of the servers of a pool."""
FABRIC_GROUP = "gangline/fabric-group"
"""Label of servers on the same leaf switches."""
HOSTNAME = "kubernetes.io/hostname"
"""Label of a server that pods select to be bound there."""


SCHEDULERS = {"volcano": "volcano", "kai": "kai-scheduler"}
"""Scheduler that binds the pods of a gang, by route; others leave it to the cluster's default."""
INDEX = "batch.kubernetes.io/job-completion-index"
"""Label and annotation of a pod of an Indexed Job: its node rank."""


def secret_name(job: str) -> str:
    """The only Secret that pods of this Job may mount; `manifests/base/cluster/admission.yaml` enforces it."""
    return f"{job}.gang"


def collection_path(group_version: str, plural: str, namespace: str) -> str:
    """Path of a namespaced collection; `group_version` of core resources is `v1`."""
    root = "api" if group_version == "v1" else "apis"
    return f"/{root}/{group_version}/namespaces/{namespace}/{plural}"


_PLURALS = {
    "ConfigMap": "configmaps", "InferenceService": "inferenceservices", "Job": "jobs", "JobSet": "jobsets",
    "NetworkPolicy": "networkpolicies", "PodGroup": "podgroups", "Service": "services", "TrainJob": "trainjobs",
    "TrainingRuntime": "trainingruntimes",
}  # fmt: skip


def path_of(thing: Object) -> str:
    """Path of the collection that an object with a namespace is created in."""
    return collection_path(thing["apiVersion"], _PLURALS[thing["kind"]], thing["metadata"]["namespace"])


def rfc3339(time: datetime) -> str:
    """`time` in UTC, in whole seconds."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
