"""The object store of the cluster: MinIO as a Deployment in a namespace of its own, and its bucket.

Inside it is `http://minio.gangline-store:9000`, on the host 127.0.0.1 at `places.store_port`."""

import secrets
import time
from typing import Any

import urllib3
from minio import Minio
from minio.error import MinioException
from tests.cluster.images.archive import Image
from tests.cluster.rig import places
from tests.cluster.rig.trouble import Trouble

NAMESPACE = "gangline-store"
BUCKET = "gangline"
ACCESS_KEY = "gangline"
CLUSTER_ENDPOINT = f"http://minio.{NAMESPACE}:{places.STORE_PORT}"
ASK = ("get", "deployment", "minio", "--namespace", NAMESPACE, "-o", "jsonpath={.status.availableReplicas}")
"""Of kubectl; 1 once it is there."""
_START_SECONDS = 60.0


def endpoint() -> str:
    return f"http://127.0.0.1:{places.store_port()}"


def credentials() -> str:
    """`key:secret` of its root; the secret is made once a cluster home, and kept with mode 0600."""
    path = places.state() / "store-secret"
    if not path.is_file():
        path.touch(mode=0o600)
        path.write_text(secrets.token_hex(20))
    return f"{ACCESS_KEY}:{path.read_text()}"


def objects(image: Image) -> list[dict[str, Any]]:
    labels = {"app.kubernetes.io/name": "minio"}
    _, _, secret = credentials().partition(":")
    metadata = {"name": "minio", "namespace": NAMESPACE, "labels": labels}
    port = {"name": "s3", "port": places.STORE_PORT}
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "stringData": {"MINIO_ROOT_USER": ACCESS_KEY, "MINIO_ROOT_PASSWORD": secret},
        },
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {
                "clusterIP": places.STORE_ADDRESS,
                "selector": labels,
                "ports": [port],
                "publishNotReadyAddresses": True,  # a probe that was slow on a busy machine cuts nobody off
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": _pod(image)},
            },
        },
    ]


def make_bucket(*, seconds: float = _START_SECONDS) -> None:
    """Wait until the store answers on the host, then make the bucket where there is none."""
    access_key, _, secret = credentials().partition(":")
    pool = urllib3.PoolManager(retries=False, timeout=2)
    client = Minio(f"127.0.0.1:{places.store_port()}", access_key, secret, secure=False, http_client=pool)
    deadline = time.monotonic() + seconds
    while (said := _asked_for_bucket(client)) is not None:
        if time.monotonic() > deadline:
            raise Trouble(f"the store did not answer on {endpoint()} for {seconds:.0f} s: {said}")
        time.sleep(0.1)


def _asked_for_bucket(client: Minio) -> str | None:
    """None: it is there. Else why not: refused, reset, 503, each of which ends when the server has started."""
    try:
        if not client.bucket_exists(BUCKET):
            client.make_bucket(BUCKET)
    except (urllib3.exceptions.HTTPError, MinioException, OSError) as error:
        return str(error)
    return None


def _pod(image: Image) -> dict[str, Any]:
    server = {
        "name": "minio",
        "image": image.reference,
        "imagePullPolicy": "Never",
        "args": ["server", "--quiet", "--address", f":{places.STORE_PORT}", "/data"],
        "env": [{"name": "MINIO_BROWSER", "value": "off"}, {"name": "HOME", "value": "/data"}],
        "envFrom": [{"secretRef": {"name": "minio"}}],
        "ports": [{"containerPort": places.STORE_PORT}],
        "readinessProbe": {
            "httpGet": {"path": "/minio/health/ready", "port": places.STORE_PORT},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
        },
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    return {
        "serviceAccountName": "minio",  # the default one comes seconds later in a new cluster
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": 2,
        "containers": [server],
        "volumes": [{"name": "data", "emptyDir": {"sizeLimit": "8Gi"}}],
    }
