"""Credentials of one run, on the servers that give them."""

from secrets import token_hex

import pytest

from gangline.errors import StorageError, UsageError
from gangline.storage.local import FolderStore
from gangline.storage.multipart import MIN_PART_BYTES
from gangline.storage.scoped import scoped_credentials


@pytest.mark.tools
@pytest.mark.row("A2")
def test_run_credential_reaches_its_own_prefix_and_reads_inputs(minio_server):
    prefix = f"scope/{token_hex(8)}"
    owner = minio_server.store(prefix)
    owner.put("blobs/sha256/abc", b"shared")
    owner.put("runs/p/c/other/record.json", b"theirs")
    credentials = scoped_credentials(owner, "runs/p/c/mine")
    assert credentials
    scoped = minio_server.store(prefix, credentials=credentials)
    assert scoped.put_if_absent("runs/p/c/mine/record.json", b"{}")
    etag = scoped.get("runs/p/c/mine/record.json").etag
    assert scoped.compare_and_set("runs/p/c/mine/record.json", b"{1}", etag)
    with scoped.upload("runs/p/c/mine/big") as upload:
        upload.part(b"x" * MIN_PART_BYTES)
        assert [each.key for each in scoped.open_uploads("runs/p/c/mine/")] == ["runs/p/c/mine/big"]
    assert [each.key for each in scoped.list("runs/p/c/mine/")] == [
        "runs/p/c/mine/big",
        "runs/p/c/mine/record.json",
    ]
    assert scoped.get("blobs/sha256/abc").data == b"shared"
    assert scoped.list("blobs/")
    scoped.delete("runs/p/c/mine/big")
    assert scoped.get("runs/p/c/mine/big") is None


@pytest.mark.tools
@pytest.mark.row("A2")
def test_run_credential_is_denied_elsewhere(minio_server):
    prefix = f"scope/{token_hex(8)}"
    owner = minio_server.store(prefix)
    owner.put("runs/p/c/mine2/record.json", b"theirs")
    owner.put("blobs/sha256/abc", b"shared")
    credentials = scoped_credentials(owner, "runs/p/c/mine")
    assert credentials
    scoped = minio_server.store(prefix, credentials=credentials)
    denied = [
        lambda: scoped.get("runs/p/c/mine2/record.json"),
        lambda: scoped.put("runs/p/c/mine2/record.json", b""),
        lambda: scoped.put("blobs/sha256/abc", b"forged"),
        lambda: scoped.delete("blobs/sha256/abc"),
        lambda: scoped.upload("runs/p/c/mine2/big"),
        lambda: scoped.list(""),
        lambda: scoped.list("runs/"),
        lambda: scoped.list("runs/p/c/mine2/"),
        lambda: minio_server.store("elsewhere", credentials=credentials).list(""),
    ]
    for call in denied:
        with pytest.raises(StorageError, match=r"AccessDenied.*may not do that"):
            call()
    assert owner.get("blobs/sha256/abc").data == b"shared"


def test_no_credential_where_none_is_given(tmp_path):
    assert scoped_credentials(FolderStore(tmp_path), "runs/p/c/r") is None


@pytest.mark.tools
def test_gateway_without_sts_gives_none(versitygw_server):
    assert scoped_credentials(versitygw_server.store(), "runs/p/c/r") is None


@pytest.mark.tools
def test_wrong_key_gets_no_credential(minio_server):
    wrong = minio_server.store(credentials="gangline:wrong-secret-key")
    with pytest.raises(StorageError, match="status code 403"):
        scoped_credentials(wrong, "runs/p/c/r")


def test_credential_beyond_an_hour_is_refused(tmp_path):
    with pytest.raises(UsageError, match="900 to 3600 seconds, got 3601"):
        scoped_credentials(FolderStore(tmp_path), "runs/p/c/r", seconds=3601)
