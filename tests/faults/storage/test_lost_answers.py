"""Answers that are lost, late or wrong, from a proxy before real servers: every write happens once or is told."""

import time
from concurrent.futures import ThreadPoolExecutor
from secrets import token_hex

import pytest
from minio import Minio
from minio.commonconfig import ENABLED
from minio.versioningconfig import VersioningConfig
from tests.faults.instruments.history import History, check

from gangline.errors import StorageError
from gangline.faults.proxy import FaultProxy, FaultRule

pytestmark = pytest.mark.tools

REFUSED = FaultRule(action="answer", on_request=1, status=503)
LOST = {
    "500 after commit": FaultRule(action="answer", direction="down", on_request=1, status=500),
    "reset after 200": FaultRule(action="reset", direction="down", on_request=1),
    "cut after 200": FaultRule(action="cut", direction="down", on_request=1),
}
SHAKY = (
    FaultRule(action="answer", probability=0.1),
    FaultRule(action="answer", direction="down", probability=0.1, status=500),
    FaultRule(action="reset", direction="down", probability=0.1),
)


@pytest.fixture
def proxy(s3_server, seed):
    with FaultProxy("127.0.0.1", s3_server.port, seed=seed) as proxy:
        yield proxy


@pytest.fixture
def direct(s3_server):
    return s3_server.store(f"lost/{token_hex(8)}")


@pytest.fixture
def store(s3_server, direct, proxy):
    """The same objects, seen through the proxy."""
    return s3_server.store(direct.prefix.rstrip("/"), endpoint=proxy.endpoint, deadline_seconds=20)


@pytest.mark.row("S10")
@pytest.mark.parametrize("rule", LOST.values(), ids=LOST)
def test_write_that_happened_is_not_sent_again(store, direct, proxy, rule):
    old = direct.put("swap", b"old")
    for write in (
        lambda: store.put("put", b"new"),
        lambda: store.put_if_absent("create", b"new"),
        lambda: store.compare_and_set("swap", b"new", old),
    ):
        proxy.set_rules(rule)
        assert write()
        assert proxy.requests == 2, "the write, and one look at what became of it"
    for key in ("put", "create", "swap"):
        assert direct.get(key).data == b"new"


@pytest.mark.row("S10")
def test_refused_write_is_sent_again(store, direct, proxy):
    for write in (lambda: store.put("put", b"new"), lambda: store.put_if_absent("create", b"new")):
        proxy.set_rules(REFUSED)
        assert write()
    assert direct.get("create").data == direct.get("put").data == b"new"


@pytest.mark.row("S10")
def test_loser_with_a_lost_answer_learns_that_it_lost_or_that_no_one_knows(store, direct, proxy):
    direct.put("taken", b"theirs")
    proxy.set_rules(LOST["reset after 200"])
    with pytest.raises(StorageError, match="another version is there now"):
        store.put_if_absent("taken", b"ours")
    proxy.set_rules(REFUSED)
    assert store.put_if_absent("taken", b"ours") is None, "a 503 was no attempt"
    assert direct.get("taken").data == b"theirs"


def test_server_that_stays_silent_is_given_up_at_the_deadline(s3_server, proxy):
    proxy.set_rules(FaultRule(action="answer", probability=1.0))
    store = s3_server.store(endpoint=proxy.endpoint, deadline_seconds=0.5)
    for call in (lambda: store.get("k"), lambda: store.put("k", b""), lambda: store.list("")):
        with pytest.raises(StorageError, match=r"no answer to .* is the server up and reachable from here"):
            call()


def test_tries_are_spaced(store, proxy):
    proxy.set_rules(*[FaultRule(action="answer", on_request=number) for number in range(1, 5)])
    assert store.put("k", b"v")
    assert proxy.requests == 5
    times = [strike.mono for strike in proxy.strikes]
    assert times[-1] - times[0] > 0.15, "each wait is longer than the one before"


def test_retry_after_is_obeyed(store, proxy):
    proxy.set_rules(FaultRule(action="answer", on_request=1, retry_after_seconds=1))
    began = time.monotonic()
    assert store.put("k", b"v")
    assert time.monotonic() - began >= 1
    assert proxy.requests == 2


def test_retry_after_beyond_the_deadline_ends_the_call_at_once(store, proxy):
    proxy.set_rules(FaultRule(action="answer", on_request=1, retry_after_seconds=3600))
    with pytest.raises(StorageError, match="no answer to GET"):
        store.get("k")
    assert proxy.requests == 1


def test_reads_survive_a_shaky_line(store, direct, proxy):
    for i in range(20):
        direct.put(f"r/{i:02}", bytes([i]) * 10_000)
    proxy.set_rules(*SHAKY)
    assert [store.get(f"r/{i:02}").data for i in range(20)] == [bytes([i]) * 10_000 for i in range(20)]
    assert len(store.list("r/")) == 20
    assert proxy.strikes


@pytest.mark.row("S10")
def test_shaky_line_makes_no_second_version(minio_server, seed):
    _no_second_version(minio_server, seed, writes=40)


@pytest.mark.row("S10")
@pytest.mark.slow
def test_shaky_line_makes_no_second_version_of_1000(minio_server, seed):
    _no_second_version(minio_server, seed, writes=1000)


def _no_second_version(server, seed, *, writes):
    bucket = f"versions-{token_hex(4)}"
    client = Minio(f"127.0.0.1:{server.port}", server.access_key, server.secret_key, secure=False)
    client.make_bucket(bucket)
    client.set_bucket_versioning(bucket, VersioningConfig(ENABLED))
    with FaultProxy("127.0.0.1", server.port, rules=SHAKY, seed=seed) as proxy:
        store = _store_of(server, bucket, proxy.endpoint)
        for i in range(writes):
            assert store.put(f"put/{i}", b"%d" % i)
            assert store.put_if_absent(f"create/{i}", b"%d" % i)
        assert len(proxy.strikes) > writes / 10
    found = [each.object_name for each in client.list_objects(bucket, recursive=True, include_version=True)]
    assert sorted(found) == sorted(f"{kind}/{i}" for kind in ("put", "create") for i in range(writes))


def _store_of(server, bucket, endpoint):
    other = type(server)(server.name, server.folder, bucket=bucket, secret_key=server.secret_key, port=server.port)
    return other.store(endpoint=endpoint)


@pytest.mark.row("C4")
def test_history_over_a_shaky_line_is_linearizable(s3_server, direct, proxy, seed):
    proxy.set_rules(*SHAKY)
    history = History()

    def work(worker):
        own = s3_server.store(direct.prefix.rstrip("/"), endpoint=proxy.endpoint, deadline_seconds=20)
        client = history.client(own, worker)
        for turn in range(6):
            value, etag = client.read("register")
            mine = f"{worker}.{turn}".encode()
            if value is None:
                client.create("register", mine)
            else:
                client.swap("register", mine, expected=value, etag=etag)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert {call.outcome for call in history.calls} >= {"ok", "fail"}
    assert check(history.calls) is None, f"seed {seed}"
