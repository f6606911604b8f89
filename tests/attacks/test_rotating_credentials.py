"""Row 15: a credential that is replaced while requests run, ends in mid upload, or is half-written when it is read."""

import itertools
import os
import threading
import time
from secrets import token_hex

import pytest
from tests.attacks.issuing import IssuingGateway

from gangline.errors import StorageError
from gangline.faults.s3_gateway import S3Gateway, refusal
from gangline.storage.folder.store import FolderStore
from gangline.storage.objects.multipart import MIN_PART_BYTES
from gangline.storage.open import open_store
from gangline.storage.s3 import sts_sessions
from gangline.storage.s3.run_credentials import policy, revoke_credentials, scoped_credentials

pytestmark = pytest.mark.row("A2")


@pytest.fixture
def gateway(tmp_path):
    with IssuingGateway(FolderStore(tmp_path / "store")) as server:
        yield server


@pytest.fixture
def file(gateway, tmp_path):
    path = tmp_path / "credentials"
    path.write_text(gateway.issue())
    return path


def opened(gateway, file):
    return open_store(S3Gateway.url(gateway.port), credentials=file, deadline_seconds=10)


def test_requests_during_a_rotation_carry_one_credential_each(gateway, file):
    store, over = opened(gateway, file), threading.Event()

    def rotate():
        while not over.is_set():
            gateway.replace(file)

    thread = threading.Thread(target=rotate)
    thread.start()
    try:
        for count in itertools.count():
            assert store.get("no-such-key") is None
            if count >= 300 and len({number for _, number in gateway.answered}) > 50:
                break
    finally:
        over.set()
        thread.join()
    assert gateway.mixed == []


def ends_as_it_is_used(gateway, file):
    """The first credential ends, and another one is in the file, while a request that it signed is under way."""

    def rotate(number):
        if number == 0 and len(gateway.issued) == 1:
            gateway.replace(file)
            gateway.end(0)

    gateway.before = rotate


@pytest.mark.parametrize(
    ("status", "code"), [(403, "InvalidAccessKeyId"), (400, "ExpiredToken"), (403, "InvalidTokenId")]
)
@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("get", ("k",)), ("head", ("k",)), ("put", ("n", b"")), ("put_if_absent", ("n", b"")),
        ("list", ("",)), ("delete", ("k",)), ("open_uploads", ()),
    ],
)  # fmt: skip
def test_a_request_whose_credential_ended_is_sent_once_more_by_the_one_in_the_file(
    tmp_path, call, arguments, status, code
):
    file = tmp_path / "credentials"
    with IssuingGateway(FolderStore(tmp_path / "store"), status=status, code=code) as gateway:
        file.write_text(gateway.issue())
        store = opened(gateway, file)
        ends_as_it_is_used(gateway, file)
        getattr(store, call)(*arguments)
        assert [number for _, number in gateway.refused] == [0]
        assert {number for _, number in gateway.answered} == {1}


def test_an_upload_and_a_listing_outlive_any_number_of_credentials(gateway, file):
    store = opened(gateway, file)

    def rotate(number):
        if any(each == number for _, each in gateway.answered):  # each is good for one request
            gateway.replace(file)
            gateway.end(number)

    gateway.before = rotate
    with store.upload("big") as upload:
        for part in (b"a", b"b", b"c"):
            upload.part(part * MIN_PART_BYTES)
    for number in range(5):
        store.put(f"small/{number}", b"")
    assert [entry.key for entry in store.list("")] == ["big", *(f"small/{number}" for number in range(5))]
    assert store.get("big", MIN_PART_BYTES, 1).data == b"b"
    assert store.open_uploads() == []
    assert len(gateway.refused) >= 12
    assert len(gateway.refused) == len(gateway.issued) - 1
    assert gateway.mixed == []


@pytest.mark.parametrize("rotates", [False, True])
def test_a_refusal_is_answered_by_one_more_request_at_most(gateway, file, rotates):
    store = opened(gateway, file)

    def refuse(number):
        if rotates:
            gateway.replace(file)
        gateway.end(number)

    gateway.before = refuse
    with pytest.raises(StorageError, match="ExpiredToken: the session token has expired"):
        store.get("k")
    assert len(gateway.refused) == (2 if rotates else 1)


def test_a_credential_that_is_not_a_file_is_never_asked_for_again(gateway):
    store = opened(gateway, gateway.issue())
    gateway.end(0)
    with pytest.raises(StorageError, match="ExpiredToken"):
        store.put("k", b"")
    assert len(gateway.refused) == 1


def test_tries_of_one_request_keep_their_credential(gateway, file):
    """A server that says "later" is asked again by the credential that asked first."""
    store = opened(gateway, file)
    busy = iter([True, True])
    answer = gateway._answer

    def later(request):
        gateway.replace(file)
        return refusal(503, "SlowDown") if next(busy, False) else answer(request)

    gateway._answer = later
    assert store.get("k") is None
    assert [number for _, number in gateway.answered] == [0, 0, 0]


def test_a_file_that_is_missing_or_holds_no_credential_changes_nothing(gateway, file):
    store = opened(gateway, file)
    os.link(file, file.with_name("kept"))  # its inode goes to no other file, which would look half written
    file.unlink()
    assert store.get("k") is None
    for text in ("", "access", "access:", ":secret", "acc ess:secret", "access:sec\nret", "access:s\x1bcret"):
        another = file.with_name("another")
        another.write_text(text)
        another.replace(file)
        assert store.get("k") is None
    file.write_bytes(b"\xff\xfe")
    assert store.get("k") is None
    assert {number for _, number in gateway.answered} == {0}
    gateway.replace(file)
    assert store.get("k") is None
    assert gateway.answered[-1][1] == 1


def test_a_file_that_is_written_in_place_counts_once_it_is_left_alone(gateway, file):
    store, text = opened(gateway, file), gateway.issue()
    for end in range(1, len(text)):
        file.write_text(text[:end])
        assert store.get("k") is None
    assert {number for _, number in gateway.answered} == {0}
    file.write_text(text)
    stamp = time.time() - 1
    os.utime(file, (stamp, stamp))
    assert store.get("k") is None
    assert gateway.answered[-1][1] == 1


def test_a_refused_request_waits_for_the_end_of_a_file_that_is_being_written(gateway, file):
    store, text = opened(gateway, file), gateway.issue()
    file.write_text(text[:-3])
    writer = threading.Timer(0.2, file.write_text, [text])
    gateway.end(0)
    writer.start()
    assert store.get("k") is None
    writer.join()
    assert gateway.answered == [("GET", 1)]
    assert gateway.mixed == []


@pytest.mark.tools
def test_sessions_of_a_real_server_rotate_under_requests(minio_server, tmp_path):
    prefix, file, over = f"rotating/{token_hex(4)}", tmp_path / "credentials", threading.Event()
    owner = minio_server.store(prefix)
    lent = [sts_sessions.assume(owner.wire, policy(owner, write="gang"), seconds=900) for _ in range(4)]
    rename(lent[0], file)
    store = minio_server.store(prefix, credentials=file)

    def rotate():
        for text in itertools.cycle(lent):
            if over.is_set():
                return
            rename(text, file)

    thread = threading.Thread(target=rotate)
    thread.start()
    try:
        for number in range(100):
            store.put("gang/k", b"%d" % number)
            assert store.get("gang/k").data == b"%d" % number
    finally:
        over.set()
        thread.join()


@pytest.mark.tools
def test_an_upload_to_a_real_server_continues_when_its_credential_is_taken_back(minio_server, tmp_path):
    prefix, file = f"rotating/{token_hex(4)}", tmp_path / "credentials"
    owner = minio_server.store(prefix)

    def renew():
        """The credential before is dead, and another one is in the file."""
        revoke_credentials(owner, "gang")
        rename(scoped_credentials(owner, write="gang").text, file)

    renew()
    store = minio_server.store(prefix, credentials=file)
    with store.upload("gang/big") as upload:
        for part in (b"a", b"b"):
            upload.part(part * MIN_PART_BYTES)
            renew()
    renew()
    assert store.get("gang/big", MIN_PART_BYTES - 1, 2).data == b"ab"
    assert [entry.key for entry in store.list("gang/")] == ["gang/big"]
    revoke_credentials(owner, "gang")
    with pytest.raises(StorageError, match="InvalidAccessKeyId"):
        store.get("gang/big")


def rename(text, file):
    another = file.with_name("another")
    another.write_text(text)
    another.replace(file)
