"""A store behind the gateway: who may speak to it, and what a fault does. Its answers: `tests/contracts/storage`."""

import pytest

from gangline.errors import StorageError
from gangline.faults.proxy import FaultProxy, FaultRule
from gangline.faults.s3_gateway import S3Gateway
from gangline.storage.folder.store import FolderStore
from gangline.storage.open import open_store

pytestmark = [pytest.mark.row("S5"), pytest.mark.row("S6")]


@pytest.fixture
def folder(tmp_path):
    return FolderStore(tmp_path / "store")


@pytest.fixture
def gateway(folder):
    with S3Gateway(folder) as gateway:
        yield gateway


def client(gateway, port=None, **options):
    options = {"credentials": gateway.credentials, "deadline_seconds": 20.0, **options}
    return open_store(S3Gateway.url(port or gateway.port), **options)


def test_what_goes_through_it_lies_in_the_store_behind_and_the_other_way_round(folder, gateway):
    store = client(gateway)
    store.put("runs/a", b"one")
    folder.put("runs/b", b"two")
    assert folder.get("runs/a").data == b"one"
    assert store.get("runs/b").data == b"two"
    assert [each.key for each in store.list("runs/")] == ["runs/a", "runs/b"]


def test_a_stranger_reads_and_writes_nothing(folder, gateway):
    folder.put("k", b"secret")
    stranger = client(gateway, credentials="nobody:a-secret")
    for call in (lambda: stranger.get("k"), lambda: stranger.put("k", b"mine"), lambda: stranger.delete("k")):
        with pytest.raises(StorageError, match="access key is unknown"):
            call()
    assert folder.get("k").data == b"secret"


def test_a_full_prefix_takes_no_byte_and_the_rest_does(folder, gateway):
    store = client(gateway)
    gateway.fill("runs/r/checkpoints/")
    for call in (lambda: store.put("runs/r/checkpoints/a", b"x"), lambda: store.upload("runs/r/checkpoints/b")):
        with pytest.raises(StorageError, match="XMinioStorageFull: the store is full; free some space there"):
            call()
    store.put("runs/r/events", b"still room here")
    gateway.fill(None)
    store.put("runs/r/checkpoints/a", b"x")
    assert [each.key for each in folder.list("runs/")] == ["runs/r/checkpoints/a", "runs/r/events"]


def test_a_server_that_is_gone_and_then_answers_503_is_waited_for(gateway):
    with FaultProxy("127.0.0.1", gateway.port) as proxy:
        store = client(gateway, proxy.port)
        proxy.shut()
        hurried = client(gateway, proxy.port, deadline_seconds=0.3)
        with pytest.raises(StorageError, match="no answer"):
            hurried.put("k", b"x")
        proxy.set_rules(*(FaultRule(action="answer", status=503, on_request=number) for number in (1, 2)))
        proxy.open()
        store.put("k", b"x")
        assert [each.rule.status for each in proxy.strikes] == [503, 503]
        assert store.get("k").data == b"x"
