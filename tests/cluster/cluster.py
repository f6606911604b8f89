"""`Cluster`: what a test knows of the cluster it runs against, whoever owns that.

The project's own is brought up where this machine can; `GANGLINE_TEST_KUBECONFIG` names another, and then these say
the rest: `GANGLINE_TEST_STORE_URL`, `_STORE_ENDPOINT`, `_STORE_CLUSTER_ENDPOINT`, `_STORE_CREDENTIALS`,
`GANGLINE_TEST_IMAGE`, `_TRAIN_IMAGE`, `_FEDERATION_IMAGE`. What is not said is asked for by a skip that names it."""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import tenant
from tests.cluster.images import importing, recipes
from tests.cluster.images.base import base_path
from tests.cluster.images.importing import has
from tests.cluster.operators import jobset, kueue, trainer
from tests.cluster.rig import env, machine, places, store
from tests.cluster.rig.kubectl import Kubectl
from tests.cluster.rig.trouble import Lacking, Trouble
from tests.cluster.rig.up import bring, up
from tests.cluster.rig.wait import await_true
from tests.cluster.servers.build import missing, program

from gangline.launch.kubernetes.objects.render import RootName
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.open import open_store

_LEFTOVERS = "pods,jobs,services,secrets,configmaps,networkpolicies"
GONE_SECONDS = 60.0
"""In which what was deleted must be gone."""


@dataclass(kw_only=True)
class Cluster:
    environ: Mapping[str, str]
    """The variables above."""
    kubectl: Kubectl
    is_own: bool
    """The project's own: images can be brought, the node is ours to disturb."""
    namespaces: list[str] = field(default_factory=list)
    """Made by `namespace` and not yet deleted."""
    leaving: list[str] = field(default_factory=list)
    """Deleted, perhaps not yet gone."""

    @property
    def kubeconfig(self) -> Path:
        return self.kubectl.kubeconfig

    @property
    def store_url(self) -> str:
        """`s3://bucket`; a run takes a prefix of it."""
        return self._reported("GANGLINE_TEST_STORE_URL")

    @property
    def endpoint(self) -> str:
        """Of the store, from this machine."""
        return self._reported("GANGLINE_TEST_STORE_ENDPOINT")

    @property
    def cluster_endpoint(self) -> str:
        """Of the same store, from a pod."""
        return self._reported("GANGLINE_TEST_STORE_CLUSTER_ENDPOINT")

    @property
    def credentials(self) -> str:
        """`key:secret`."""
        return self._reported("GANGLINE_TEST_STORE_CREDENTIALS")

    @property
    def image(self) -> str:
        """By digest: Python and gangline, no torch."""
        return self._reported("GANGLINE_TEST_IMAGE")

    @property
    def train_image(self) -> str:
        """By digest: with torch, too; of the present code."""
        if not self.is_own:
            return self._reported("GANGLINE_TEST_TRAIN_IMAGE")
        if not has(f"{recipes.TRAIN}-base"):
            pytest.skip("make cluster-up brings the image with torch, minutes once")
        return bring(recipes.train_base(), recipes.train()).reference

    @property
    def federation_image(self) -> str:
        """By digest: that of ranks with NVFlare, Opacus, bubblewrap and the command line; of the present code."""
        if not self.is_own:
            return self._reported("GANGLINE_TEST_FEDERATION_IMAGE")
        pytest.importorskip("nvflare", reason="nvflare is not installed")
        if shutil.which("bwrap") is None:
            pytest.skip("bubblewrap is not installed, which the image of members takes from this machine")
        assert self.train_image
        importing.ensure(recipes.federation_base(), under=recipes.train_base())
        return bring(recipes.federation_base(), recipes.federation()).reference

    def store(self, prefix: str) -> ObjectStore:
        """The store below `prefix`, as this machine reaches it."""
        return open_store(f"{self.store_url}/{prefix}", endpoint=self.endpoint, credentials=self.credentials)

    def store_url_for_pods(self, prefix: str) -> str:
        """The same place, as a PodSet names it."""
        return f"{self.store_url}/{prefix}?endpoint={self.cluster_endpoint}"

    def namespace(self, name: str) -> str:
        """A new namespace for gangs, as a site sets one up; `delete`, or the end of the session, removes it."""
        plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:30].strip("-")
        made = f"gangline-test-{plain}-{secrets.token_hex(3)}"
        self.namespaces.append(made)
        self.kubectl.apply(tenant.objects(made))
        account = ("get", "serviceaccount", "default", "-n", made, "--ignore-not-found", "-o", "name")
        await_true(f"the account of {made}", lambda: bool(self.kubectl.run(*account).strip()), seconds=30)
        return made

    def delete(self, namespace: str) -> None:
        """Ask for its end; `await_gone` sees to it, since a namespace takes 5 s to go."""
        self.kubectl.run("delete", "namespace", namespace, "--wait=false", "--ignore-not-found")
        self.namespaces.remove(namespace)
        self.leaving.append(namespace)

    def await_gone(self) -> None:
        """Fails where something in a deleted namespace does not go."""
        for namespace in self.leaving:
            gone = partial(self._is_gone, namespace)
            await_true(f"the end of {namespace}", gone, seconds=GONE_SECONDS)
        self.leaving.clear()

    def _is_gone(self, namespace: str) -> bool:
        with contextlib.suppress(Trouble):  # no answer is none
            return not self.kubectl.run("get", "namespace", namespace, "--ignore-not-found", "-o", "name").strip()
        return False

    def leftovers(self, namespace: str, *, labels: str = "gangline/gang") -> list[str]:
        """Objects of gangs in `namespace`, `kind/name` each."""
        return self.kubectl.run("get", _LEFTOVERS, "-n", namespace, "-l", labels, "-o", "name").split()

    def serves(self, kind: str) -> bool:
        """`plural.group`."""
        return kind in self.kubectl.run("api-resources", "-o", "name").split()

    def demand(self, kind: RootName) -> None:
        """Gangs under roots of this kind run from now on, or a skip that says what is missing."""
        if kind == "job":
            return
        if not self.is_own:
            served = {"jobset": "jobsets.jobset.x-k8s.io", "trainjob": "trainjobs.trainer.kubeflow.org"}[kind]
            if not self.serves(served):
                pytest.skip(f"the given cluster serves no {served}")
        else:
            _demand_operator(*{"jobset": ["jobset"], "trainjob": ["jobset", "trainer-controller-manager"]}[kind])
            with _alone("roots"):
                {"jobset": jobset, "trainjob": trainer}[kind].install(self.kubectl)

    def lend_kueue(self) -> contextlib.AbstractContextManager[None]:
        """Kueue for as long as the context lasts: the given cluster's, else its newest release; or a skip."""
        if not self.is_own:
            if not self.serves("workloads.kueue.x-k8s.io"):
                pytest.skip("the given cluster serves no workloads.kueue.x-k8s.io")
            return contextlib.nullcontext()
        _demand_operator("kueue")
        return _one_at_a_time("kueue", kueue.lent(self.kubectl))

    def lend_kinds_of_kueue(self) -> contextlib.AbstractContextManager[None]:
        """Kueue's kinds without its controller, for what is only checked."""
        if not self.is_own:
            return self.lend_kueue()
        if shutil.which("go") is None:
            pytest.skip("Go is not on the PATH; the definitions of Kueue's kinds lie in its module cache")
        return _one_at_a_time("kueue", kueue.kinds(self.kubectl))

    def read(self, *arguments: str) -> dict[str, Any]:
        return self.kubectl.read(*arguments)

    def _reported(self, name: str) -> str:
        value = self.environ.get(name)
        if not value:
            pytest.skip(f"{name} is not set; with GANGLINE_TEST_KUBECONFIG it says what this test needs")
        return value


def _demand_operator(*names: str) -> None:
    """Skip where one of these servers is not built, or its manifests cannot be had."""
    if shutil.which("go") is None:
        pytest.skip(f"Go is not on the PATH; the manifests that {' and '.join(names)} need lie in its module cache")
    if wanted := [name for name in names if not program(name).is_file()]:
        pytest.skip(f"make cluster-up builds {', '.join(wanted)}, minutes once")


@contextlib.contextmanager
def _alone(what: str) -> Iterator[None]:
    """Other processes of the tests wait: what is installed in the cluster is the same for all."""
    with (places.home() / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _one_at_a_time(what: str, lent: contextlib.AbstractContextManager[None]) -> Iterator[None]:
    with _alone(what), lent:
        yield


def open_cluster() -> Iterator[Cluster]:
    """The given one, or the project's own, or a skip with the reason; what the tests made is gone afterwards."""
    cluster = _given() if os.environ.get("GANGLINE_TEST_KUBECONFIG") else _own()
    cluster.kubectl.create_missing(tenant.shared_objects())
    yield cluster
    for namespace in list(cluster.namespaces):
        cluster.delete(namespace)
    cluster.await_gone()


def _given() -> Cluster:
    found = shutil.which("kubectl")
    if found is None:
        pytest.skip("GANGLINE_TEST_KUBECONFIG is set, but kubectl is not on the PATH")
    kubeconfig = Path(os.environ["GANGLINE_TEST_KUBECONFIG"])
    return Cluster(environ=dict(os.environ), kubectl=Kubectl(program=Path(found), kubeconfig=kubeconfig), is_own=False)


def _slow_to_make() -> list[str]:
    """What nobody should wait for inside a test."""
    tools = [store.server(), base_path()]
    return [name for _, name in missing()] + [path.stem for path in tools if not path.is_file()]


def _own() -> Cluster:
    """A machine that cannot have one is a reason to skip; a cluster that does not come up is a failure."""
    try:
        machine.check()
        if wanted := _slow_to_make():
            pytest.skip(f"make cluster-up makes {', '.join(wanted)}, minutes once")
        up()
    except Lacking as lacking:
        pytest.skip(str(lacking))
    reported = env.environment()
    kubectl = Kubectl(program=program("kubectl"), kubeconfig=Path(reported["GANGLINE_TEST_KUBECONFIG"]))
    return Cluster(environ=reported, kubectl=kubectl, is_own=True)
