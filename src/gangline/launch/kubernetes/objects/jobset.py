"""A gang under JobSet, alone or inside a TrainingRuntime: one replicated Job; JobSet makes the Service of its pods."""

from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.cluster.rights import JOBSET
from gangline.launch.kubernetes.objects.job import FINISHED_SECONDS, job_spec
from gangline.launch.kubernetes.objects.labels import CHILD, FABRIC_GROUP, collection_path
from gangline.launch.kubernetes.objects.pod import pod_template
from gangline.launch.kubernetes.objects.render_context import RenderContext, labels, metadata

GROUP_VERSION = f"{JOBSET}/v1alpha2"
EXCLUSIVE_TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def jobsets_path(namespace: str) -> str:
    """Path of the JobSets of `namespace`."""
    return collection_path(GROUP_VERSION, "jobsets", namespace)


def jobset(context: RenderContext) -> Object:
    """The JobSet of a gang, suspended; it runs once `suspend` is removed.

    By the route "jobset" its only Job gets one group of servers that no other such Job uses; pods of one group follow
    the first to the group that the scheduler chose for it, in any order.
    """
    described = metadata(context, root=True)
    if context.route == "jobset":
        described["annotations"][EXCLUSIVE_TOPOLOGY] = FABRIC_GROUP
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "JobSet",
        "metadata": described,
        "spec": jobset_spec(context) | {"suspend": True, "ttlSecondsAfterFinished": FINISHED_SECONDS},
    }


def job_of(gang: str) -> str:
    """Name of the Job that JobSet makes for a gang."""
    return f"{gang}-{CHILD}-0"


def jobset_spec(context: RenderContext, *, job_labels: dict[str, str] | None = None) -> Object:
    """`spec` without `suspend`, time to live and failure policy.

    Trainer 2.1 creates a JobSet that was deleted by its time to live again, and trains again. A failed Job fails the
    JobSet even without a policy of 0 restarts; controllers drop that 0 when they write the object, and the API server
    then refuses the write, as the policy is immutable.

    Args:
        context: Of the gang.
        job_labels: Additional labels of the Job.
    """
    name = context.podset.name
    template = pod_template(context, job=job_of(name))
    if context.podset.priority == "low":
        template["spec"].pop("priorityClassName", None)  # JobSet makes a label of its value: none begins with a minus
    child = {
        "name": CHILD,
        "replicas": 1,
        "template": {
            "metadata": {"labels": labels(context.podset) | (job_labels or {})},
            "spec": job_spec(context, template),
        },
    }
    return {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": name},
        "replicatedJobs": [child],
    }
