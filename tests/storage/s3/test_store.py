"""What an S3 server refuses, in words that say what works; and never a secret in them."""

import socket
import threading
import time
import urllib.request

import pytest
from tests.contracts.storage import servers

from gangline.errors import StorageError
from gangline.storage.open import open_store

pytestmark = pytest.mark.tools


def refusal(call):
    with pytest.raises(StorageError) as refused:
        call()
    return str(refused.value)


def test_wrong_secret_names_endpoint_and_what_to_check(s3_server):
    store = s3_server.store(credentials=f"{s3_server.access_key}:a-wrong-secret")
    for call in (lambda: store.get("k"), lambda: store.put("k", b""), lambda: store.put_if_absent("k", b"")):
        text = refusal(call)
        assert s3_server.endpoint in text
        assert "SignatureDoesNotMatch" in text
        assert "check store.credentials" in text
        assert "a-wrong-secret" not in text


def test_unknown_access_key_is_named(s3_server):
    store = s3_server.store(credentials="nobody:whatever-secret")
    for call in (
        lambda: store.list(""),
        lambda: store.get("k"),
        lambda: store.put("k", b""),
        lambda: store.delete("k"),
    ):
        assert "the access key is unknown there; check store.credentials and store.endpoint" in refusal(call)


def test_refused_head_is_not_a_missing_key(s3_server):
    for wrong in ("nobody:whatever-secret", f"{s3_server.access_key}:wrong-secret"):
        text = refusal(lambda wrong=wrong: s3_server.store(credentials=wrong).head("k"))
        assert "check store.credentials" in text
    assert s3_server.store().head("no-such-key") is None


def test_missing_bucket_is_not_a_missing_key(s3_server):
    store = open_store("s3://no-such-bucket", endpoint=s3_server.endpoint, credentials=s3_server.credentials)
    for call in (
        lambda: store.get("k"),
        lambda: store.head("k"),
        lambda: store.put("k", b""),
        lambda: store.put_if_absent("k", b""),
        lambda: store.compare_and_set("k", b"", "etag"),
        lambda: store.list(""),
        lambda: store.upload("k"),
    ):
        assert "there is no bucket no-such-bucket; create it, or check store.url" in refusal(call)


def test_gateway_over_files_takes_no_key_below_another(versitygw_server):
    store = versitygw_server.store("below")
    store.put("a/b", b"object")
    assert "no key may lie below another" in refusal(lambda: store.put("a/b/c", b""))
    assert store.get("a/b/c") is None
    assert store.head("a/b/c") is None
    store.delete("a/b")


def test_server_that_is_not_there_is_given_up_at_the_deadline():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        store = open_store("s3://bucket", endpoint=endpoint, credentials="key:secret-word", deadline_seconds=0.3)
        began = time.monotonic()
        text = refusal(lambda: store.put("k", b""))
    assert time.monotonic() - began < 30
    assert f"store s3://bucket at {endpoint}: no answer to PUT k" in text
    assert "is the server up and reachable" in text
    assert "secret-word" not in text


def test_plain_server_behind_https_is_a_matter_of_the_endpoint(s3_server):
    endpoint = s3_server.endpoint.replace("http:", "https:")
    assert "TLS failed" in refusal(lambda: s3_server.store(endpoint=endpoint).get("k"))


def test_presigned_url_reads_without_credentials(s3_server):
    store = s3_server.store("presigned")
    store.put("a/b.txt", b"for everyone with the link")
    url = store.presign("a/b.txt", 60)
    with urllib.request.urlopen(url, timeout=20) as answer:
        assert answer.read() == b"for everyone with the link"
    assert s3_server.secret_key not in url


def test_prefixes_of_one_bucket_do_not_see_each_other(s3_server):
    left, right = s3_server.store("left"), s3_server.store("leftover")
    left.put("k", b"left")
    right.put("k", b"right")
    assert [entry.key for entry in left.list("")] == ["k"]
    assert left.get("k").data == b"left"
    with left.upload("big") as upload:
        assert right.open_uploads() == []
        upload.part(b"x")


def test_pages_continue_behind_hidden_notes(s3_server):
    store = s3_server.store("notes")
    blocks = [store.upload(f"big/{i}") for i in range(3)]
    for block in blocks:
        block.__enter__()
    store.put("-first", b"")
    store.put("last", b"")
    assert [entry.key for entry in store.list("")] == ["-first", "last"]
    assert [entry.key for entry in store.list("", "-first")] == ["last"]
    assert [entry.key for entry in store.list("", limit=1)] == ["-first"]
    for block in blocks:
        block.gen.close()


def test_upload_whose_begin_was_lost_leaves_a_note_to_collect(s3_server):
    store = s3_server.store("begun")
    store.wire.send("PUT", "begun/.uploads~/big/one/~0123")
    (left,) = store.open_uploads("big/")
    assert (left.key, left.upload_id) == ("big/one", "")
    store.abort_upload(left)
    assert store.open_uploads() == []


def test_note_of_an_upload_that_still_runs_stays(s3_server):
    store = s3_server.store("two")
    with store.upload("big") as going, store.upload("big") as left:
        left.part(b"x")
        store.abort_upload(next(each for each in store.open_uploads() if each.upload_id == left.upload_id))
        assert [each.upload_id for each in store.open_uploads()] == [going.upload_id]
        going.part(b"goes on")
        left.abort()
        left.complete = lambda: None
    assert store.get("big").data == b"goes on"
    assert store.open_uploads() == []


def test_threads_share_a_store(s3_server):
    store = s3_server.store("threads")
    failures = []

    def work(i):
        for turn in range(5):
            store.put(f"t/{i}", b"%d" % turn)
            if store.get(f"t/{i}").data != b"%d" % turn:
                failures.append((i, turn))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(store.list("t/")) == 16


def test_a_server_that_no_one_ever_met_is_given_up_sooner_than_one_that_went_away(tmp_path):
    server = servers.S3Server("minio", tmp_path)
    patience = {"connect_seconds": 0.5, "deadline_seconds": 60.0}
    began = time.monotonic()
    text = refusal(lambda: server.store(**patience).list(""))
    assert time.monotonic() - began < 30
    assert server.endpoint in text
    assert "no answer to GET (bucket)" in text
    assert "gangline store doctor" in text
    server.start()
    store = server.store(**patience)
    try:
        assert store.list("") == []
    finally:
        server.kill()
    began = time.monotonic()
    refusal(lambda: store.list(""))
    assert time.monotonic() - began > 3


def test_a_credential_that_is_replaced_in_its_file_is_used_from_the_next_request_on(s3_server, tmp_path):
    file = tmp_path / "credentials"
    file.write_text(f"{s3_server.access_key}:no-longer-valid")
    store = s3_server.store(credentials=file)
    refusal(lambda: store.list(""))
    renewed = tmp_path / "renewed"
    renewed.write_text(s3_server.credentials + "\n")
    renewed.replace(file)
    assert store.get("no-such-key") is None
    file.unlink()
    assert store.get("no-such-key") is None
