"""Brings the cluster up: builds what is missing, starts it unless it runs, and waits until it can run pods.

One `up` works at a time; killed at any moment, the next one goes on. Every wait ends."""

import contextlib
import fcntl
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.cluster.images import importing, recipes
from tests.cluster.images.archive import Image
from tests.cluster.rig import answers, cgroups, config, host, kubectl, machine, pki, places, process, store, sysctls
from tests.cluster.rig.inside import ctr
from tests.cluster.rig.output import say
from tests.cluster.rig.trouble import Trouble
from tests.cluster.rig.wait import await_true
from tests.cluster.servers.build import build
from tests.tools.__main__ import main as make_tools

_ROOT = Path(__file__).parents[3]
_WAIT_SECONDS = 120.0
_FRESH = ("etcd", "kubelet", "pod-logs", "log", "store", "api.sock", "store.sock", "complete")
"""In the state folder; each cluster begins without them. Images stay."""


def up(*, train: bool = False, operators: bool = False) -> None:
    """Idempotent; with `train` the image with torch is there, too, with `operators` what the suites install.

    Raises:
        Trouble: Something did not come up in time.
    """
    machine.check()
    with _alone():
        build(operators=operators)
        _make_store_server()
        if not is_complete():
            _start()
        _bring_images(train=train)


def is_running() -> bool:
    return process.read(host.host_file()) is not None and process.read(host.init_file()) is not None


def is_complete() -> bool:
    """Running, and an `up` came to its end."""
    return is_running() and (places.state() / "complete").is_file() and answers.ready()


def _start() -> None:
    began = time.monotonic()
    if not is_running():
        _prepare()
        _launch()
    _wait("containerd", lambda: subprocess.run(ctr("version"), capture_output=True, check=False).returncode == 0)
    _say("containerd", began)
    importing.ensure(recipes.pause(), tag="1")
    for each in (recipes.SMALL, recipes.TRAIN):
        importing.forget(each)  # of earlier code; nobody runs it by now
    _wait("API server", answers.ready)
    _say("API server", began)
    kubectl.own().apply(config.base_objects())
    kubectl.own().apply(store.objects())
    ready = '{.status.conditions[?(@.type=="Ready")].status}'
    _wait("node", lambda: kubectl.own().holds("get", "node", places.NODE, "-o", f"jsonpath={ready}", wanted="True"))
    _say("node", began)
    store.make_bucket()
    _say("store", began)
    (places.state() / "complete").touch()


def _prepare() -> None:
    """Everything a start needs, and what an earlier cluster left is gone."""
    host.stop()
    _demand_free(places.api_port(), "GANGLINE_TEST_API_PORT")
    _demand_free(places.store_port(), "GANGLINE_TEST_STORE_PORT")
    cgroups.remove()
    for name in _FRESH:
        path = places.state() / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for name in ("etcd", "log"):
        (places.state() / name).mkdir(mode=0o700)
    pki.make_keys(places.keys())
    config.write_config(places.configuration())
    store.write_environment()
    sysctls.keep(places.state() / "sysctls.json")
    cgroups.make()


def _demand_free(port: int, variable: str) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise Trouble(f"port {port} of 127.0.0.1 is taken ({error}); {variable} names another") from error


def _launch() -> None:
    with (places.logs() / "host.log").open("ab") as log:
        launched = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.rig.host"], cwd=_ROOT, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    _wait("namespaces", lambda: is_running() or launched.poll() is not None, seconds=20)
    if not is_running():
        raise Trouble(f"the namespaces were not made:\n{(places.logs() / 'host.log').read_text()[-1500:]}")


def _bring_images(*, train: bool) -> None:
    """Those of the present code; a former one's few files are all that is new."""
    bring(recipes.small_base(), recipes.small())
    if train:
        bring(recipes.train_base(), recipes.train())


def bring(base: Image, image: Image) -> Image:
    """Import `image`, whose lower layers are those of `base`; what an earlier lock gave is dropped."""
    importing.ensure(base)
    importing.forget(base.name, but=frozenset({base.reference}))
    importing.ensure(image, under=base)
    return image


def _make_store_server() -> None:
    if not store.server().is_file() and make_tools(store.SERVER):
        raise Trouble("the cluster's store is MinIO, which `make tools` builds; it did not")


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    places.state().mkdir(parents=True, exist_ok=True)
    with (places.home() / "up.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _wait(what: str, holds: Callable[[], bool], *, seconds: float = _WAIT_SECONDS) -> None:
    await_true(what, holds, seconds=seconds, hint=f"; see {places.logs()}")


def _say(what: str, began: float) -> None:
    say("cluster", f"{what} ready after {time.monotonic() - began:.1f} s")
