"""The Indexed Job of a gang: the root itself, and what JobSet and Trainer make of their templates."""

from gangline.errors import SIGTERM_CODE
from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.objects.labels import CONTAINER, DISRUPTION, collection_path
from gangline.launch.kubernetes.objects.pod import pod_template
from gangline.launch.kubernetes.objects.render_context import RenderContext, metadata

GROUP_VERSION = "batch/v1"
FINISHED_SECONDS = 3600
"""How long an ended root is kept for readers."""


def jobs_path(namespace: str) -> str:
    """Path of the Jobs of `namespace`."""
    return collection_path(GROUP_VERSION, "jobs", namespace)


def job(context: RenderContext) -> Object:
    """The Job of a gang, suspended; it runs once `suspend` is removed."""
    name = context.podset.name
    spec = job_spec(context, pod_template(context, job=name, subdomain=name))
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "Job",
        "metadata": metadata(context, root=True),
        "spec": spec | {"suspend": True, "ttlSecondsAfterFinished": FINISHED_SECONDS},
    }


def job_spec(context: RenderContext, template: Object) -> Object:
    """One pod per node; only a pod that was asked to leave is replaced: keepers restart ranks, the line restarts gangs.

    An evicted pod has a condition. A deleted pod (by a user, or by a queue that suspends its Job) has none; it is
    recognised by the exit code of a keeper that was asked to stop.
    """
    spec: Object = {
        "completionMode": "Indexed",
        "completions": context.podset.num_nodes,
        "parallelism": context.podset.num_nodes,
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": DISRUPTION, "status": "True"}]},
                {"action": "Ignore", "onExitCodes": _exit_code("In", SIGTERM_CODE)},
                {"action": "FailJob", "onExitCodes": _exit_code("NotIn", 0)},
            ]
        },
        "template": template,
    }
    if context.deadline_seconds is not None:
        spec["activeDeadlineSeconds"] = context.deadline_seconds
    return spec


def _exit_code(operator: str, code: int) -> Object:
    return {"containerName": CONTAINER, "operator": operator, "values": [code]}
