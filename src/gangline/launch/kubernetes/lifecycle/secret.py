"""The Secret of a gang on its server: written whole, never read, patched or deleted.

The answer to a PUT shows what was sent. A patch answers with all that the Secret holds, and so does a delete that
keeps dependents waiting: an account that may do one of these may read every Secret of the namespace.
"""

from collections.abc import Mapping

from gangline.launch.kubernetes.client.api import ApiConflict, ApiQuotaExceeded, ApiUnavailable, KubernetesApi
from gangline.launch.kubernetes.objects.labels import secret_name
from gangline.launch.kubernetes.objects.render import owned
from gangline.launch.kubernetes.objects.service_and_secret import empty_secret, secret, secrets_path
from gangline.launch.kubernetes.state.roots import Root


def put_secret(api: KubernetesApi, root: Root, values: Mapping[str, bytes]) -> None:
    """Give the gang these values, whether it has its Secret already or not."""
    body = owned(secret(root.podset(), values, job=root.job), root.object)
    path = secrets_path(api.namespace)
    try:
        api.create(path, body)
    except (ApiConflict, ApiQuotaExceeded, ApiUnavailable):  # what is there already counts in no quota once more
        if api.replace(f"{path}/{secret_name(root.job)}", body) is None:
            raise


def revoke_secret(api: KubernetesApi, root: Root) -> None:
    """Take the values away; the Secret itself goes with its root."""
    body = owned(empty_secret(root.podset(), job=root.job), root.object)
    api.replace(f"{secrets_path(api.namespace)}/{secret_name(root.job)}", body)
