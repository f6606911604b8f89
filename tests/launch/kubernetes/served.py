"""A fake API server behind HTTP, the proxy of faults before it, and clients of both."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.fake.front import kubeconfig, serving
from tests.cluster.fake.server import FakeServer
from tests.cluster.faults.proxy.proxy import ApiFaultProxy

from gangline.launch.kubernetes.client.client import KubernetesClient, connect

MAPS = "/api/v1/namespaces/gangs/configmaps"


@dataclass
class Stand:
    server: FakeServer
    proxy: ApiFaultProxy

    def client(self, *, deadline_seconds: float = 10.0) -> KubernetesClient:
        """One that goes through the proxy."""
        return connect({**os.environ, "KUBECONFIG": str(self.proxy.kubeconfig)}, deadline_seconds=deadline_seconds)

    def names(self) -> set[str]:
        """Of the ConfigMaps there are, past every client."""
        found = self.server.store.all_of(self.server.kind("configmaps"), "gangs")
        return {each["metadata"]["name"] for each in found}


@contextmanager
def stand(folder: Path) -> Iterator[Stand]:
    server = FakeServer()
    server.add_namespace("gangs")
    with serving(server) as url, ApiFaultProxy(kubeconfig(folder / "direct", url), folder) as proxy:
        yield Stand(server=server, proxy=proxy)


def config_map(name: str, **data: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
