"""Check that the namespace of gangs rejects pods which mount a foreign Secret, by a dry run against the API server."""

from gangline.launch.kubernetes.client.api import ApiRejected, KubernetesApi, Object
from gangline.launch.kubernetes.cluster.facts import missing_rights
from gangline.launch.kubernetes.cluster.rights import Right
from gangline.launch.kubernetes.objects.job import GROUP_VERSION, jobs_path

SHOWS_SECRETS = Right(resource="secrets", verbs=("get", "list", "patch", "delete"))
"""Verbs whose answers hold a Secret."""
_RULE = "gangline: pods mount no Secret but"
_PROBE = "gangline-doctor"
_DIGEST = "0" * 64


def is_guarded(api: KubernetesApi) -> bool:
    """Does it refuse a Job whose pods would mount a Secret of another name? Nothing is created.

    Raises:
        Refused: Not by our policy, so nothing is known of it.
        OverQuota: It takes no Job at all now.
    """
    try:
        api.create(jobs_path(api.namespace), _greedy_job(), dry_run=True)
    except ApiRejected as error:
        if _RULE not in str(error):
            raise
        return True
    return False


def secrets_shown(api: KubernetesApi) -> list[str]:
    """Verbs by which this account sees every Secret of the namespace; a driver needs none of them."""
    lacking = missing_rights(api, wanted=(SHOWS_SECRETS,))
    return [verb for verb in SHOWS_SECRETS.verbs if f"{verb} {SHOWS_SECRETS.what}" not in lacking]


def _greedy_job() -> Object:
    """All that is asked of a gang's pods, and a Secret too many."""
    container = {"name": "node", "image": f"{_PROBE}@sha256:{_DIGEST}"}
    volume = {"name": "secret", "secret": {"secretName": _PROBE}}
    pod = {
        "restartPolicy": "Never",
        "serviceAccountName": "gangline-gang",
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [volume],
    }
    template = {"metadata": {"labels": {"gangline/run": _PROBE}}, "spec": pod}
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "Job",
        "metadata": {"name": _PROBE},
        "spec": {"suspend": True, "template": template},
    }
