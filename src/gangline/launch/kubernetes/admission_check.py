"""Checks that the namespace of gangs rejects pods that mount a foreign Secret, by a dry run."""

from gangline.launch.kubernetes.client.api import ApiRejected, KubernetesApi, Object
from gangline.launch.kubernetes.cluster.facts import missing_rights
from gangline.launch.kubernetes.cluster.rights import Right
from gangline.launch.kubernetes.state.roots import JOB

_SHOWS_SECRETS = Right(resource="secrets", verbs=("get", "list", "patch", "delete"))
"""Verbs whose answers hold a Secret."""
_RULE = "gangline: pods mount no Secret but"
_PROBE = "gangline-doctor"
_DIGEST = "0" * 64


def is_guarded(api: KubernetesApi) -> bool:
    """Whether the namespace refuses a Job whose pods mount a Secret of another name. Nothing is created.

    Raises:
        ApiRejected: The Job was refused for another reason, so nothing is known of the policy.
        ApiQuotaExceeded: The namespace takes no Job at all now.
    """
    try:
        api.create(JOB.path(api.namespace), _greedy_job(), dry_run=True)
    except ApiRejected as error:
        if _RULE not in str(error):
            raise
        return True
    return False


def secrets_shown(api: KubernetesApi) -> list[str]:
    """Verbs with which this account can read every Secret of the namespace; a driver needs none of them."""
    lacking = missing_rights(api, wanted=(_SHOWS_SECRETS,))
    return [verb for verb in _SHOWS_SECRETS.verbs if f"{verb} {_SHOWS_SECRETS.what}" not in lacking]


def _greedy_job() -> Object:
    """A Job that meets the policy for gangs, but mounts a Secret of another name."""
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
        "apiVersion": JOB.group_version,
        "kind": "Job",
        "metadata": {"name": _PROBE},
        "spec": {"suspend": True, "template": template},
    }
