"""Coordinator of a federation in the pod of its gang: a container that has the kits, next to the rank, which has not.

It starts before the rank and is ended after it. Of the pod's volumes the two share one folder, in which the rank asks
and the coordinator answers; kits and what NVFlare's server keeps are the coordinator's alone, and in memory.
"""

import math
from collections.abc import Iterator

from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.objects.labels import COORDINATOR, GANG, secret_name
from gangline.launch.kubernetes.objects.pod_environment import (
    MAILBOX_FOLDER,
    SECRETS_FOLDER,
    STORE_CREDENTIALS,
    USER,
    confinement,
    literal,
)
from gangline.launch.kubernetes.objects.render_context import RenderContext, metadata
from gangline.spec.gang.driver_orders import COORDINATOR_KEY, CoordinatorPod, coordinator_of

COMMAND = ("python", "-m", "gangline.flare.pod")
HOME = "/coordinator"
KITS_FOLDER = "/var/run/gangline/kits"
SERVER_KIT, ADMIN_KIT = "server.tar", "admin.tar"
"""Files of the two kits in that folder, whatever their keys in the Secrets are."""
_HOME_BYTES = 256 * 1024**2
_MAILBOX, _HOME, _KITS, _STORE = "federation", "coordinator", "kits", "coordinator-store"


def containers(context: RenderContext) -> list[Object]:
    """The container, if the gang has a coordinator: one that starts first and is kept until the rank has ended."""
    pod = coordinator_of(context.podset.env)
    return [] if pod is None else [_container(context, pod)]


def volumes(context: RenderContext, *, job: str) -> Iterator[Object]:
    """Volumes of it, and that which it shares with the rank; `job` is as for `pod.volumes`."""
    pod = coordinator_of(context.podset.env)
    if pod is None:
        return
    yield {"name": _MAILBOX, "emptyDir": {"sizeLimit": str(int(context.pod.disk_bytes))}}
    yield {"name": _HOME, "emptyDir": {"medium": "Memory", "sizeLimit": str(_HOME_BYTES)}}
    yield {"name": _KITS, "projected": {"defaultMode": 0o440, "sources": _kits(pod)}}
    if STORE_CREDENTIALS in context.podset.secrets:
        only = [{"key": STORE_CREDENTIALS, "path": STORE_CREDENTIALS}]
        yield {"name": _STORE, "secret": {"secretName": secret_name(job), "items": only, "defaultMode": 0o440}}


def rank_mounts(context: RenderContext) -> Iterator[Object]:
    """What the rank mounts of these volumes."""
    if coordinator_of(context.podset.env) is not None:
        yield {"name": _MAILBOX, "mountPath": MAILBOX_FOLDER}


def services(context: RenderContext) -> Iterator[Object]:
    """Service that members dial. Their kits name it, so runs share its name; it goes with the gang that has it."""
    pod = coordinator_of(context.podset.env)
    if pod is not None:
        yield {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata(context) | {"name": pod.service},
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": {GANG: context.podset.name},
                "ports": [{"name": "federation", "port": pod.port, "protocol": "TCP"}],
            },
        }


def _kits(found: CoordinatorPod) -> list[Object]:
    pairs = ((found.kit, SERVER_KIT), (found.admin, ADMIN_KIT))
    named = [(*reference.split("/", 1), path) for reference, path in pairs]
    return [{"secret": {"name": name, "items": [{"key": key, "path": path}]}} for name, key, path in named]


def _container(context: RenderContext, found: CoordinatorPod) -> Object:
    asked = {"cpu": f"{math.ceil(context.pod.cpus * 1000)}m", "memory": str(int(context.pod.memory_bytes))}
    return {
        "name": COORDINATOR,
        "image": found.image,
        "imagePullPolicy": context.pod.pull,
        "restartPolicy": "Always",
        "command": list(COMMAND),
        "env": [{"name": name, "value": literal(value)} for name, value in sorted(_environment(context).items())],
        "ports": [{"name": "federation", "containerPort": found.port, "protocol": "TCP"}],
        "resources": {"requests": asked, "limits": dict(asked)},
        "securityContext": confinement(),
        "volumeMounts": _mounts(context),
    }


def _environment(context: RenderContext) -> dict[str, str]:
    podset = context.podset
    own = {
        COORDINATOR_KEY: podset.env[COORDINATOR_KEY], "GANGLINE_CODE": podset.code, "GANGLINE_STORE": podset.store,
        "GANGLINE_MAILBOX": MAILBOX_FOLDER, "GANGLINE_KITS": KITS_FOLDER, "HOME": HOME, "TMPDIR": HOME,
        "LOGNAME": USER, "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    if STORE_CREDENTIALS in podset.secrets:
        own["GANGLINE_STORE_CREDENTIALS_FILE"] = f"{SECRETS_FOLDER}/{STORE_CREDENTIALS}"
    return own


def _mounts(context: RenderContext) -> list[Object]:
    found: list[Object] = [
        {"name": _MAILBOX, "mountPath": MAILBOX_FOLDER},
        {"name": _HOME, "mountPath": HOME},
        {"name": _KITS, "mountPath": KITS_FOLDER, "readOnly": True},
    ]
    if STORE_CREDENTIALS in context.podset.secrets:
        found.append({"name": _STORE, "mountPath": SECRETS_FOLDER, "readOnly": True})
    return found
