"""A gang under JobSet, alone or inside a TrainingRuntime: one replicated Job; JobSet makes the Service of its pods."""

from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.cluster.rights import JOBSET
from gangline.launch.kubernetes.objects.job import FINISHED_SECONDS, job_spec
from gangline.launch.kubernetes.objects.labels import CHILD, collection_path
from gangline.launch.kubernetes.objects.pod import pod_template
from gangline.launch.kubernetes.objects.render_context import RenderContext, labels, metadata

GROUP_VERSION = f"{JOBSET}/v1alpha2"


def jobsets_path(namespace: str) -> str:
    return collection_path(GROUP_VERSION, "jobsets", namespace)


def jobset(context: RenderContext) -> Object:
    """Suspended; runs when `suspend` is taken away."""
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "JobSet",
        "metadata": metadata(context, root=True),
        "spec": jobset_spec(context) | {"suspend": True, "ttlSecondsAfterFinished": FINISHED_SECONDS},
    }


def job_of(gang: str) -> str:
    """Name of the Job that JobSet makes for a gang."""
    return f"{gang}-{CHILD}-0"


def jobset_spec(context: RenderContext, *, job_labels: dict[str, str] | None = None) -> Object:
    """Without `suspend`, and without a time to live: Trainer 2.1 makes a JobSet that went away anew, and trains again.

    Without a failure policy, too: a Job that failed fails the JobSet, as "restart 0 times" would. But controllers drop
    that zero whenever they write the object again, and are refused, as the policy must not change.

    Args:
        context: Of the gang.
        job_labels: More labels of the Job.
    """
    name = context.podset.name
    template = pod_template(context, job=job_of(name))
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
