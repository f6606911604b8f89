"""Service and Secret of a gang: the host names of its pods, and the values that they mount."""

import base64
from collections.abc import Mapping

from gangline.errors import ConfigError
from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.objects.labels import GANG, collection_path, secret_name
from gangline.launch.kubernetes.objects.pod_environment import CONTROL_PORT, RENDEZVOUS_PORT
from gangline.launch.kubernetes.objects.render_context import RenderContext, labels, metadata
from gangline.spec.gang.podset import PodSet


def service(context: RenderContext) -> Object:
    """Headless Service for the host names of pods, which are needed before the pods are ready."""
    ports = {"rendezvous": RENDEZVOUS_PORT, "control": CONTROL_PORT}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(context),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {GANG: context.podset.name},
            "ports": [{"name": name, "port": port, "protocol": "TCP"} for name, port in ports.items()],
        },
    }


def secret(podset: PodSet, values: Mapping[str, bytes], *, job: str) -> Object:
    """Secret that the pods of `job` mount: the values of `podset.secrets`.

    Raises:
        ConfigError: A value is missing.
    """
    if missing := [name for name in podset.secrets if name not in values]:
        raise ConfigError(
            f"gang {podset.name}: wanted values of the secrets {', '.join(podset.secrets)},"
            f" found none of {', '.join(missing)}"
        )
    data = {name: base64.b64encode(values[name]).decode() for name in podset.secrets}
    return empty_secret(podset, job=job) | {"data": data}


def empty_secret(podset: PodSet, *, job: str) -> Object:
    """The Secret without values; its namespace comes from the path of the request."""
    named = {"name": secret_name(job), "labels": labels(podset)}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": named, "type": "Opaque"}


def secrets_path(namespace: str) -> str:
    """Path of the Secrets of `namespace`."""
    return collection_path("v1", "secrets", namespace)
