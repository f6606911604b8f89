"""Launchers to hold to the contract, each with a store and something that runs its pods. Nothing of them is left."""

import os
from pathlib import Path

from tests.cluster.fake.admission import policies
from tests.cluster.fake.api import FakeApi
from tests.cluster.fake.controllers import JobController
from tests.cluster.fake.kubelet import FakeKubelet
from tests.contracts.launcher.gangs import Stand, poll
from tests.contracts.launcher.kubelet import ProcessKubelet

from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.launcher import KubernetesLauncher
from gangline.launch.kubernetes.objects.render import RootName
from gangline.launch.kubernetes.state.roots import JOB, JOBSET, TRAINJOB
from gangline.launch.protocol import Launcher
from gangline.procfs import with_variable
from gangline.spec.config.site import LaunchTable, PodTable
from gangline.spec.gang.podset import PodSet, Resources

IMAGE = f"registry.example/gangline/runtime@sha256:{'0' * 64}"
STORE = "s3://gangs/store?endpoint=http://store.example:9000"
"""What pods are told; their processes use the folder behind it."""
ROOTS = {"job": JOB, "jobset": JOBSET, "trainjob": TRAINJOB}
NAMES = ("run-1", "ended", "orphan", "followed", "unknown")


class FakeStand(Stand):
    """The launcher of clusters over the fake API server; its pods are processes with real keepers."""

    def __init__(self, root: Path) -> None:
        self.api = FakeApi(patience=0.2)
        self.api.server.policies = policies()
        super().__init__(root)
        self.kubelet = ProcessKubelet(self.api, self.root, store=self.store)

    def again(self) -> Launcher:
        return self.over(self.api)

    def over(self, api) -> Launcher:
        """A driver that reaches the server by `api`."""
        return KubernetesLauncher(
            api,
            facts=ClusterFacts(version="1.34", served=("batch/v1/jobs",), placer=True),
            launch=LaunchTable(target="kubernetes", launcher="job"),
            pod=PodTable(),
            secrets=lambda name: f"value of {name}".encode(),
        )

    def podset(self, program: str, name: str = "run-1", **changes) -> PodSet:
        small = {"image": IMAGE, "store": STORE, "resources": Resources(cpus=1.0, memory_bytes=2**30, shm_bytes=2**26)}
        return super().podset(program, name, **small | changes)

    def processes(self, name: str = "run-1") -> list[int]:
        return [pid for home in self.kubelet.homes(name) for pid in with_variable("GANGLINE_HOME", str(home))]

    def leftovers(self, name: str) -> list[str]:
        """Objects of a gang, but for the end that is kept of it."""
        server = self.api.server
        return [
            f"{kind.plural}/{body['metadata']['name']}"
            for kind in server.kinds
            for body in server.store.all_of(kind, self.api.namespace)
            if body["metadata"].get("labels", {}).get("gangline/gang") == name
        ]

    def close(self) -> None:
        for name in NAMES:
            self.launcher.cancel(name, reason="the test is over", save=False)
        poll(lambda: not any(self.processes(name) for name in NAMES))
        self.kubelet.close()


class PodlessStand(FakeStand):
    """Drivers and a server, but nothing that runs pods."""

    def __init__(self, root) -> None:
        self.api = FakeApi(patience=0.02)
        Stand.__init__(self, root)
        self.jobs = JobController(self.api.server)
        self.nodes = FakeKubelet(self.api.server)

    def gang(self, name: str = "run-1", **changes) -> PodSet:
        some = {
            "name": name, "run": name, "project": "p", "commit": "c", "procs_per_node": 2, "num_nodes": 2,
            "code": "blobs/sha256/aa", "plan": "blobs/sha256/bb", "store": STORE, "image": IMAGE,
            "resources": Resources(cpus=1.0, memory_bytes=2**30), "secrets": ("checkpoint-key",),
        }  # fmt: skip
        return PodSet(**some | changes)

    def turn(self) -> None:
        """Controllers and kubelet, once."""
        with self.api.server.store.changed:
            self.jobs.step()
            self.nodes.step()

    def roots(self) -> list[dict]:
        return self.all_of("jobs.batch")

    def all_of(self, kind: str) -> list[dict]:
        return list(self.api.server.store.all_of(self.api.server.kind(kind), self.api.namespace))


class ClusterStand(FakeStand):
    """The launcher of clusters over a real one; `kind` is the root of its gangs."""

    def __init__(self, root: Path, cluster, namespace: str, *, kind: RootName = "job") -> None:
        from gangline.launch.kubernetes.client.client import connect

        self._cluster, self._namespace, self.kind = cluster, namespace, kind
        self.api = connect({"KUBECONFIG": str(cluster.kubeconfig), **os.environ}, namespace=namespace)
        self.prefix = namespace
        Stand.__init__(self, root, store=cluster.store(namespace))

    def again(self) -> Launcher:
        return self.over(self.api)

    def over(self, api) -> Launcher:
        from gangline.launch.kubernetes.cluster.facts import read_facts

        return KubernetesLauncher(
            api,
            facts=read_facts(self.api),
            launch=LaunchTable(target="kubernetes", launcher=self.kind, namespace=self._namespace),
            pod=PodTable(pull="Never" if self.is_own else "IfNotPresent"),
            secrets=self.secret,
        )

    @property
    def kubeconfig(self) -> Path:
        return self._cluster.kubeconfig

    @property
    def roots_path(self) -> str:
        """Of the collection that its roots are in."""
        return ROOTS[self.kind].path(self._namespace)

    @property
    def is_own(self) -> bool:
        return self._cluster.is_own

    def secret(self, name: str) -> bytes:
        return self._cluster.credentials.encode() if name == "store-credentials" else f"value of {name}".encode()

    def podset(self, program: str, name: str = "run-1", **changes) -> PodSet:
        small = {
            "image": self._cluster.image,
            "command": ("python", "-m", "gangline.keeper.pod"),
            "store": self._cluster.store_url_for_pods(self.prefix),
            "secrets": ("checkpoint-key", "store-credentials"),
            "resources": Resources(cpus=0.5, memory_bytes=2**28, shm_bytes=2**24),
        }
        return super().podset(program, name, **small | changes)

    def processes(self, name: str = "run-1") -> list[int]:
        """Pods stand for processes."""
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        found, _ = self.api.items(path, labels=f"gangline/gang={name}")
        return [1 for pod in found if pod["status"]["phase"] in ("Pending", "Running")]

    def leftovers(self, name: str) -> list[str]:
        return self._cluster.leftovers(self._namespace, labels=f"gangline/gang={name}")

    def close(self) -> None:
        for name in NAMES:
            self.launcher.cancel(name, reason="the test is over", save=False)
