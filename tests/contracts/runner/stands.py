"""Runners to hold to the contract: of this machine, of pods that are processes, of a cluster."""

import base64
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.cluster.fake.admission import policies
from tests.cluster.fake.api import FakeApi
from tests.cluster.fake.controllers import JobController
from tests.cluster.fake.kubelet import FakeKubelet

from gangline.launch.kubernetes.cluster.rights import DRIVER, READER
from gangline.launch.kubernetes.module_runner import OwningRun, PodRunner
from gangline.launch.sandbox import Sandbox, find_engine
from gangline.launch.sandbox.process_runner import ProcessRunner
from gangline.spec.config.site import LaunchTable, PodTable
from gangline.storage.open import open_store

IMAGE = f"registry.example/gangline/runtime@sha256:{'0' * 64}"
RUN = "demo-0a1b2c3d-abcdef"
WHOSE = OwningRun(run=RUN, project="demo", commit="0a1b2c3d" * 5, image=IMAGE)
_STAMP = "%Y-%m-%dT%H:%M:%S.%f"


class LocalStand:
    """Of this machine; whatever engine there is."""

    def __init__(self, root: Path) -> None:
        root.chmod(0o755)
        self.runner = ProcessRunner(lambda trust: Sandbox(engine=find_engine("auto", wide=trust == "own"), trust=trust))
        self._before = self._scratch()

    def leftovers(self) -> list[str]:
        return sorted(self._scratch() - self._before)

    def close(self) -> None: ...

    def _scratch(self) -> set[str]:
        return {each.name for each in Path("/tmp").glob("gangline-start-*")}


class FakePodStand:
    """Over the fake API server with the policies of the manifests, by an account with a driver's rights alone."""

    def __init__(self, root: Path) -> None:
        self.api = FakeApi(namespace="gangs", rights=(*DRIVER, *READER))
        self.api.server.policies = policies()
        self.api.server.denied |= {("get", "secrets"), ("list", "secrets")}
        self.store = open_store(f"file:{root / 'store'}")
        self.pods = PodsAsProcesses(self.api, root / "pods")
        self._web, url = served(self.store)
        self.runner = PodRunner(
            connect=lambda: self.api, store=self.store, pods_store=partial(Signed, url), whose=WHOSE,
            launch=LaunchTable(target="kubernetes", launcher="job"), pod=PodTable(memory_bytes=2**28),
        )  # fmt: skip

    without_image = replace(WHOSE, image=None)

    def leftovers(self) -> list[str]:
        return [*objects_left(self.api), *(each.key for each in self.store.list("once/"))]

    def close(self) -> None:
        self.pods.close()
        self._web.shutdown()
        self._web.server_close()


class ClusterPodStand:
    """Over a real cluster and its store; `kubeconfig` is that of an account with a driver's rights alone."""

    def __init__(self, cluster, namespace: str, kubeconfig: Path) -> None:
        from gangline.launch.kubernetes.client.client import connect

        self._cluster, self._namespace = cluster, namespace
        self.store = cluster.store(namespace)
        for_pods = partial(
            open_store, cluster.store_url_for_pods(namespace), credentials=cluster.credentials
        )  # fmt: skip
        self.api = connect({**os.environ, "KUBECONFIG": str(kubeconfig)}, namespace=namespace)
        self.runner = PodRunner(
            connect=lambda: self.api, store=self.store, pods_store=for_pods,
            whose=OwningRun(run=RUN, project="demo", commit=WHOSE.commit, image=cluster.image),
            launch=LaunchTable(target="kubernetes", launcher="job", namespace=namespace),
            pod=PodTable(
                pull="Never" if cluster.is_own else "IfNotPresent", cpus=0.3, memory_bytes=3e8, shm_bytes=16e6,
                disk_bytes=1e9,
            ),
        )  # fmt: skip

    def leftovers(self) -> list[str]:
        return [*self._cluster.leftovers(self._namespace), *(each.key for each in self.store.list("once/"))]

    def close(self) -> None: ...


class PodsAsProcesses:
    """A kubelet whose containers are processes of this machine: the first one, and if that went well the other."""

    def __init__(self, api: FakeApi, root: Path) -> None:
        self.api, self._root = api, root
        self.hands, self._jobs = FakeKubelet(api.server, auto=False), JobController(api.server)
        self.pods: list[dict] = []
        """As they were created."""
        self.secrets: list[dict[str, str]] = []
        """As each of them found its own."""
        self.runs = True
        self.before = lambda: None
        """Called before one is run."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def names(self) -> list[str]:
        """Of the pods there are."""
        return [
            each["metadata"]["name"] for each in self.api.server.store.all_of(self.api.server.kind("pods"), "gangs")
        ]

    def _work(self) -> None:
        while not self._over.wait(0.02):
            with self.api.server.store.changed:
                self._jobs.step()
            self.hands.step()
            for pod in list(self.api.server.store.all_of(self.api.server.kind("pods"), self.api.namespace)):
                if self.runs and pod["metadata"]["uid"] not in {each["metadata"]["uid"] for each in self.pods}:
                    self.pods.append(pod)
                    self._run(pod)

    def _run(self, pod) -> None:
        name, home = pod["metadata"]["name"], self._root / pod["metadata"]["name"]
        (home / "secrets").mkdir(parents=True)
        job = pod["metadata"]["ownerReferences"][0]["name"]
        secret = self.api.server.store.get(("secrets", self.api.namespace, f"{job}.gang"))
        self.secrets.append({key: base64.b64decode(value).decode() for key, value in secret["data"].items()})
        for key, text in self.secrets[-1].items():
            (home / "secrets" / key).write_text(text)
        self.before()
        self.hands.bind(name, namespace=self.api.namespace)
        (first,), (second,) = pod["spec"]["initContainers"], pod["spec"]["containers"]
        fetched = self._container(first, home)
        self._tell(name, "initContainerStatuses", first["name"], fetched)
        if fetched.returncode:
            self._phase(name, "Failed")
            return
        (home / "secrets" / "bundle").unlink()  # the second container does not mount them
        done = self._container(second, home)
        lines = done.stdout.removesuffix("\n").split("\n")
        now = datetime.now(UTC)
        self.api.server.logs[(self.api.namespace, name)] = [
            (f"{now:{_STAMP}}{at:07}Z", text) for at, text in enumerate(lines)
        ]
        if not self._tell(name, "containerStatuses", second["name"], done):
            self._phase(name, "Succeeded" if done.returncode == 0 else "Failed")

    def _container(self, container, home: Path):
        values = {each["name"]: each["value"] for each in container["env"]}
        environ = {name: self._here(value, home) for name, value in values.items()}
        environ |= {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, *container["command"][1:]]
        return subprocess.run(command, env=environ, cwd=home, capture_output=True, text=True, check=False, timeout=100)

    def _here(self, value: str, home: Path) -> str:
        """A path in a pod as one of this machine."""
        for inside, outside in (("/var/run/gangline/secrets", home / "secrets"), ("/gangline", home)):
            if value == inside or value.startswith(f"{inside}/"):
                return f"{outside}{value.removeprefix(inside)}"
        return value

    def _tell(self, name, statuses, container, done) -> bool:
        """True: it is gone."""
        state = {"terminated": {"exitCode": done.returncode, "message": done.stderr[-2000:], "reason": "Error"}}
        return self.change(
            name, lambda pod: pod["status"].setdefault(statuses, []).append({"name": container, "state": state})
        )

    def _phase(self, name, phase) -> bool:
        return self.change(name, lambda pod: pod["status"].update(phase=phase))

    def change(self, name, change) -> bool:
        key = ("pods", self.api.namespace, name)
        with self.api.server.store.changed:
            if (pod := self.api.server.store.get(key)) is None:
                return True
            change(pod)
            self.api.server.write(key, pod)
        return False


class Signed:
    """A store as pods of the fake reach it: URLs of `served`."""

    def __init__(self, url: str) -> None:
        self.url, self._url = "s3://gangs/store?endpoint=http://store.example:9000", url

    def presign(self, key: str, seconds: float) -> str:
        return f"{self._url}/{key}?until={seconds}"


def served(store):
    """A server of the objects of `store`, and its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            blob = store.get(self.path[1:].partition("?")[0])
            self.send_response(404 if blob is None else 200)
            self.end_headers()
            self.wfile.write(b"no such key" if blob is None else blob.data)

        def log_message(self, *_: object) -> None: ...

    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    return web, f"http://127.0.0.1:{web.server_port}"


def objects_left(api: FakeApi) -> list[str]:
    JobController(api.server).step()  # garbage is collected
    return [
        f"{kind.plural}/{body['metadata']['name']}"
        for kind in api.server.kinds
        for body in api.server.store.all_of(kind, api.namespace)
        if "gangline/gang" in body["metadata"].get("labels", {})
    ]


@contextmanager
def closing(stand):
    try:
        yield stand
    finally:
        stand.close()
