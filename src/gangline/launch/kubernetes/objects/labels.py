"""Names in a gang's objects: labels, annotations, gates, conditions, containers, paths of collections."""

from datetime import UTC, datetime

CONTAINER = "node"
"""Of every pod; Kubeflow Trainer finds its container by this name."""
CHILD = "node"
"""Of the one replicated Job of a JobSet; in the names of its Job and pods."""
DEADLINE = "GANGLINE_DEADLINE_SECONDS"
"""Variable of the keepers: the gang's own time, from their start."""
DISRUPTION = "DisruptionTarget"
"""Condition of a pod that the platform took: its end is not its own fault."""

RUN, GANG, PROJECT = "gangline/run", "gangline/gang", "gangline/project"
COMMIT, ROLE, MANAGED_BY = "gangline/commit", "gangline/role", "app.kubernetes.io/managed-by"
PODSET, SPEC, END, VERSION = "gangline/podset", "gangline/spec", "gangline/end", "gangline/version"
WAITS, QUEUED, SERVERS, CANCELLED = "gangline/waits", "gangline/queued", "gangline/servers", "gangline/cancelled"
PLACEMENT_GATE = "gangline/placement"
POOL = "gangline/pool"
"""Label and taint of the servers of a pool."""
HOSTNAME = "kubernetes.io/hostname"
"""Label of a server: its name, by which pods are sent there."""


def secret_name(job: str) -> str:
    """Of the one Secret that pods of this Job may mount; `manifests/base/cluster/admission.yaml` holds them to it."""
    return f"{job}.gang"


def collection_path(group_version: str, plural: str, namespace: str) -> str:
    """Path of a namespaced collection; core ones are `v1`."""
    root = "api" if group_version == "v1" else "apis"
    return f"/{root}/{group_version}/namespaces/{namespace}/{plural}"


def rfc3339(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
