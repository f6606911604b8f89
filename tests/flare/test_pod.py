"""First process of a coordinator's container: kits from archives, orders from a store, errors to the rank."""

import io
import json
import tarfile
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from tests.flare.offers import LAYER, ROSTER, new_orders, new_plan

from gangline.errors import ConfigError, IntegrityError, NotInstalledError, StorageError
from gangline.federated.mailbox import MailboxMembers
from gangline.federated.protocol import RoundCall
from gangline.flare import pod
from gangline.flare.orders import Coordination
from gangline.spec.gang.driver_orders import COORDINATOR_KEY, CoordinatorPod
from gangline.storage.objects.blobs import put_blob
from gangline.storage.open import open_store

CALL = RoundCall(number=1, attempt=1, trains=True, weights={"w": np.zeros(2, np.float32)}, seconds=60.0)
BESIDE = CoordinatorPod(
    image="registry.example/federation@sha256:" + "f" * 64, kit="gangline-kit/a", admin="gangline-kit/b",
    service="federation", port=8002, orders="runs/r/coordinator.json",
)  # fmt: skip


def archive(path, config, certificate, plain, *, more=()):
    names = [f"startup/{certificate}.crt", f"startup/{certificate}.key", "startup/rootCA.pem", *more]
    with tarfile.open(path, "w") as tar:
        for name, data in [(f"startup/{config}", json.dumps(plain).encode()), *((name, b"") for name in names)]:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


SERVER = {"servers": [{"service": {"target": "federation.gangs.svc:8002"}, "admin_server": "federation.gangs.svc"}]}


@pytest.fixture
def environ(tmp_path, monkeypatch):
    """Variables of a container that has all it needs."""
    monkeypatch.setattr("gangline.flare.server.version", lambda _: "2.9.0")
    for name in ("kits", "home", "box"):
        (tmp_path / name).mkdir()
    archive(tmp_path / "kits/server.tar", "fed_server.json", "server", SERVER)
    archive(tmp_path / "kits/admin.tar", "fed_admin.json", "client", {"admin": {"username": "lead@hub.example"}})
    store = open_store(f"file:{tmp_path / 'store'}")
    store.put(BESIDE.orders, replace(new_orders(new_plan(), LAYER), wait_seconds=90.0).to_json())
    return {
        COORDINATOR_KEY: BESIDE.to_json().decode(), "GANGLINE_CODE": put_blob(store, LAYER),
        "GANGLINE_STORE": store.url, "GANGLINE_MAILBOX": str(tmp_path / "box"), "HOME": str(tmp_path / "home"),
        "GANGLINE_KITS": str(tmp_path / "kits"),
    }  # fmt: skip


def test_a_container_has_its_kits_and_the_orders_of_the_driver(environ, tmp_path):
    folder = pod.prepare_pod(environ)
    found = Coordination.from_json((folder / "coordination.json").read_bytes())
    assert (found.roster, found.quorum, found.wait_seconds) == (ROSTER, 2, 90.0)
    assert (found.kit, found.admin) == (str(tmp_path / "home/server"), str(tmp_path / "home/admin"))
    assert (folder / "layer.zip").read_bytes() == LAYER
    assert pod.prepare_pod(environ) == folder, "a container that is started again"


def test_an_image_without_nvflare_is_named(environ, monkeypatch):
    monkeypatch.setattr("gangline.flare.server.version", lambda _: "2.8.1")
    with pytest.raises(NotInstalledError, match=r"federation\.image registry.*: wanted nvflare 2\.9\.x, found 2\.8\.1"):
        pod.prepare_pod(environ)


def test_a_kit_with_another_port_than_the_service_is_named(environ):
    environ[COORDINATOR_KEY] = replace(BESIDE, port=8003).to_json().decode()
    with pytest.raises(ConfigError, match=r"federation\.port: wanted 8002, the port of the kit, found 8003"):
        pod.prepare_pod(environ)


def test_what_is_no_archive_of_a_kit_is_named(environ, tmp_path):
    (tmp_path / "kits/admin.tar").write_bytes(b"no archive")
    with pytest.raises(ConfigError, match=r"admin\.tar: wanted an archive of a kit"):
        pod.prepare_pod(environ)
    archive(tmp_path / "kits/admin.tar", "fed_server.json", "server", SERVER)
    with pytest.raises(ConfigError, match="wanted a admin kit of NVFlare"):
        pod.prepare_pod(environ)


def test_an_archive_writes_nothing_outside_of_its_folder(environ, tmp_path):
    archive(tmp_path / "kits/server.tar", "fed_server.json", "server", SERVER, more=("../outside",))
    with pytest.raises(ConfigError, match=r"server\.tar: wanted an archive of a kit"):
        pod.prepare_pod(environ)
    assert not (tmp_path / "home/outside").exists()


def test_orders_of_other_code_are_refused_and_missing_ones_may_come(environ):
    store = open_store(environ["GANGLINE_STORE"])
    store.put(BESIDE.orders, new_orders(new_plan(), b"other").to_json())
    with pytest.raises(IntegrityError, match="wanted an offer of the code"):
        pod.prepare_pod(environ)
    store.delete(BESIDE.orders)
    with pytest.raises(StorageError, match=r"wanted the orders of the driver at runs/r/coordinator\.json"):
        pod.prepare_pod(environ)


def test_a_store_that_fails_ends_the_container_and_it_is_started_again(environ, monkeypatch):
    monkeypatch.setattr(pod.signal, "signal", lambda *_: None)
    open_store(environ["GANGLINE_STORE"]).delete(BESIDE.orders)
    assert pod.main(environ) == StorageError.exit_code


def test_what_can_never_work_is_said_to_the_rank(environ, monkeypatch, tmp_path):
    monkeypatch.setattr(pod.signal, "signal", lambda *_: None)
    monkeypatch.setattr(pod, "_POLL_SECONDS", 0.01)
    (tmp_path / "kits/server.tar").unlink()
    threading.Thread(target=pod.main, args=(environ,), daemon=True).start()
    deadline = time.monotonic() + 10

    def look():
        assert time.monotonic() < deadline, "the rank waits"

    with pytest.raises(ConfigError, match=r"server\.tar: wanted an archive of a kit, found: .*No such file"):
        MailboxMembers(tmp_path / "box", on_wait=look).ask(CALL)
