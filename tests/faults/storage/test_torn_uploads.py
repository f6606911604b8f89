"""Uploads that are cut, stores that die in the middle: a reader sees the old object or the new, nothing between."""

import time
from concurrent.futures import ThreadPoolExecutor
from random import Random
from secrets import token_hex

import pytest
from tests.contracts.storage.servers import S3Server

from gangline.errors import StorageError
from gangline.faults.proxy import FaultProxy, FaultRule
from gangline.storage.objects.multipart import MIN_PART_BYTES, abort_left_uploads

pytestmark = pytest.mark.tools

STEP_BYTES = 64 * 1024
SHARD_BYTES = 16 * 1024 * 1024
AWAY_AFTERWARDS = [FaultRule(action="answer", on_request=number) for number in range(2, 100)]


@pytest.fixture
def proxy(s3_server):
    with FaultProxy("127.0.0.1", s3_server.port) as proxy:
        yield proxy


@pytest.mark.row("S1")
def test_cut_shard_is_never_a_mix(s3_server, proxy, seed):
    _cut_at(s3_server, proxy, Random(seed).sample(range(1, SHARD_BYTES // STEP_BYTES), 3))


@pytest.mark.row("S1")
@pytest.mark.slow
def test_shard_cut_at_every_64_kib_is_never_a_mix(s3_server, proxy):
    _cut_at(s3_server, proxy, range(SHARD_BYTES // STEP_BYTES))


def _cut_at(server, proxy, steps):
    prefix = f"torn/{token_hex(8)}"
    reader, writer = server_pair(server, proxy, prefix)
    hasty = server.store(prefix, endpoint=proxy.endpoint, deadline_seconds=0.3)
    old = bytes(SHARD_BYTES)
    for step in steps:
        etag = reader.put("shard", old)
        new = step.to_bytes(2, "big") * (SHARD_BYTES // 2)
        proxy.set_rules(FaultRule(action="cut", after_bytes=step * STEP_BYTES), *AWAY_AFTERWARDS)
        with pytest.raises(StorageError, match="no answer"):
            hasty.put("shard", new)
        assert reader.get("shard").data == old, f"cut at {step * STEP_BYTES}"
        proxy.set_rules()
        assert writer.compare_and_set("shard", new, etag), f"cut at {step * STEP_BYTES}"
        assert reader.get("shard").data == new


@pytest.mark.row("S1")
def test_cut_parts_are_sent_again(s3_server, proxy, seed):
    prefix = f"torn/{token_hex(8)}"
    reader, writer = server_pair(s3_server, proxy, prefix)
    draw = Random(seed)
    parts = [draw.randbytes(MIN_PART_BYTES), draw.randbytes(MIN_PART_BYTES), b"tail"]
    proxy.set_rules(*[FaultRule(action="cut", after_bytes=at) for at in (1_000_000, 7_000_000, 12_000_000)])
    with writer.upload("shard") as upload:
        for part in parts:
            upload.part(part)
    assert len(proxy.strikes) >= 2
    assert reader.get("shard").data == b"".join(parts)
    assert reader.open_uploads() == []


@pytest.mark.row("S10")
def test_lost_answer_to_complete_is_settled(s3_server, proxy):
    reader, writer = server_pair(s3_server, proxy, f"torn/{token_hex(8)}")
    with writer.upload("shard") as upload:
        upload.part(b"x")
        proxy.set_rules(FaultRule(action="reset", direction="down", on_request=1))
        etag = upload.complete()
    assert proxy.strikes
    assert reader.get("shard").data == b"x"
    assert reader.get("shard").etag == etag
    assert reader.open_uploads() == []


@pytest.mark.row("S10")
def test_upload_that_began_twice_is_collected(s3_server, proxy):
    reader, writer = server_pair(s3_server, proxy, f"torn/{token_hex(8)}")
    proxy.set_rules(FaultRule(action="reset", direction="down", on_request=2))
    with writer.upload("shard") as upload:
        upload.part(b"x")
    assert [strike.request for strike in proxy.strikes] == [2]
    assert reader.get("shard").data == b"x"
    assert len(abort_left_uploads(reader, "shard", older_than_seconds=-60)) == 1
    assert reader.open_uploads() == []


def server_pair(server, proxy, prefix):
    return server.store(prefix), server.store(prefix, endpoint=proxy.endpoint, deadline_seconds=30)


@pytest.mark.row("S6")
@pytest.mark.parametrize("name", ["minio", "versitygw"])
def test_store_killed_in_mid_upload_loses_nothing(name, tmp_path):
    server = S3Server(name, tmp_path).start()
    try:
        store = server.store("killed")
        finished, left = bytes(MIN_PART_BYTES), bytes(MIN_PART_BYTES)
        abandoned = store.upload("left")
        abandoned.__enter__().part(left)
        with store.upload("big") as upload:
            upload.part(finished)
            server.kill()
            with ThreadPoolExecutor(1) as pool:
                tail = pool.submit(upload.part, b"tail")
                time.sleep(0.3)
                assert not tail.done(), "it waits for the store"
                server.start()
                tail.result(60)
        assert store.get("big").data == finished + b"tail"
        (open_upload,) = store.open_uploads()
        assert open_upload.key == "left"
        store.abort_upload(open_upload)
        abandoned.gen.close()  # it would abort again when collected, after the server's end
        assert store.open_uploads() == []
        assert [entry.key for entry in store.list("")] == ["big"]
    finally:
        server.stop()
