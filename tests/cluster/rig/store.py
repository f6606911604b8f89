"""The object store of the cluster: MinIO on the node, a Service in a namespace of its own, a bucket.

On the node, not in a pod: ranks that take every core would leave a pod's store without any. Inside it is
`http://minio.gangline-store:9000`, on the host 127.0.0.1 at `places.store_port`."""

import secrets
import time
from pathlib import Path
from typing import Any

import urllib3
from minio import Minio
from minio.error import MinioException
from tests.cluster.rig import places
from tests.cluster.rig.trouble import Trouble
from tests.tools.__main__ import tools_folder

SERVER = "minio"
NAMESPACE = "gangline-store"
BUCKET = "gangline"
ACCESS_KEY = "gangline"
CLUSTER_ENDPOINT = f"http://minio.{NAMESPACE}:{places.STORE_PORT}"
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


def server() -> Path:
    """Made by `make tools`."""
    return tools_folder() / SERVER


def environment_file() -> Path:
    return places.configuration() / "store.env"


def write_environment() -> None:
    """What its server reads at the start."""
    user, _, secret = credentials().partition(":")
    environment_file().touch(mode=0o600)
    environment_file().write_text(
        f"MINIO_ROOT_USER={user}\nMINIO_ROOT_PASSWORD={secret}\nMINIO_BROWSER=off\nHOME={places.state()}\n"
    )


def objects() -> list[dict[str, Any]]:
    """A namespace, and a Service whose one endpoint is the node."""
    metadata = {"name": "minio", "namespace": NAMESPACE}
    port = {"name": "s3", "port": places.STORE_PORT, "protocol": "TCP"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"clusterIP": places.STORE_ADDRESS, "ports": [port]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**metadata, "labels": {"kubernetes.io/service-name": "minio"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [places.NODE_ADDRESS]}],
            "ports": [port],
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
