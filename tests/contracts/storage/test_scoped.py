"""Credentials of one run, on the servers that give them; what one cannot do is in tests/attacks."""

import json
from datetime import UTC, datetime
from secrets import token_hex

import pytest
from minio import MinioAdmin
from minio.credentials import StaticProvider

from gangline.errors import StorageError, UsageError
from gangline.storage.folder.store import FolderStore
from gangline.storage.objects.multipart import MIN_PART_BYTES
from gangline.storage.open import open_store
from gangline.storage.s3 import minio_accounts, sts_sessions
from gangline.storage.s3.run_credentials import (
    credential_owners,
    credential_policy,
    policy,
    revoke_credentials,
    scoped_credentials,
)

OWN = "runs/p/c/mine/gang"


def lend(server, prefix, **options):
    lent = scoped_credentials(server.store(prefix), write=OWN, owner="runs/p/c/mine", **options)
    return lent, server.store(prefix, credentials=lent.text)


def admin(server, credentials):
    access_key, secret_key = credentials.split(":")
    return MinioAdmin(
        endpoint=f"127.0.0.1:{server.port}", credentials=StaticProvider(access_key, secret_key), secure=False
    )


@pytest.fixture
def user(minio_server):
    """Makes users who may do everything with buckets and nothing else, and says their credentials."""

    def make(denied=()):
        name, secret, root = f"u{token_hex(4)}", token_hex(16), admin(minio_server, minio_server.credentials)
        root.user_add(name, secret)
        root.policy_set("readwrite", user=name)
        if denied:
            document = {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Action": list(denied)}]}
            root.policy_add(f"deny-{name}", policy=document)
            root.attach_policy([f"deny-{name}"], user=name)
        return f"{name}:{secret}"

    return make


@pytest.mark.tools
@pytest.mark.row("A2")
def test_run_credential_reaches_its_own_prefix_and_reads_inputs(minio_server):
    prefix = f"scope/{token_hex(8)}"
    owner = minio_server.store(prefix)
    owner.put("blobs/sha256/abc", b"shared")
    lent, scoped = lend(minio_server, prefix, read=("blobs/",))
    assert lent.kind == "access key"
    etag = scoped.put_if_absent(f"{OWN}/latest.json", b"{}")
    assert scoped.compare_and_set(f"{OWN}/latest.json", b"{1}", etag)
    with scoped.upload(f"{OWN}/big") as upload:
        upload.part(b"x" * MIN_PART_BYTES)
    assert [each.key for each in scoped.list(f"{OWN}/")] == [f"{OWN}/big", f"{OWN}/latest.json"]
    assert scoped.get("blobs/sha256/abc").data == b"shared"
    scoped.delete(f"{OWN}/big")
    assert scoped.get(f"{OWN}/big") is None
    for denied in (lambda: scoped.list("blobs/"), lambda: scoped.open_uploads(OWN)):
        with pytest.raises(StorageError, match=r"AccessDenied.*may not do that"):
            denied()


@pytest.mark.tools
@pytest.mark.row("A2")
def test_a_runs_credentials_end_when_they_are_taken_back_and_no_others(minio_server):
    prefix = f"scope/{token_hex(8)}"
    owner = minio_server.store(prefix)
    mine = [lend(minio_server, prefix)[1] for _ in range(3)]  # the gang's, as it was renewed
    others = [
        scoped_credentials(minio_server.store(each), write=f"{run}/gang", owner=run)
        for each, run in ((prefix, "runs/p/c/mine2"), (prefix, "runs/p/c/min"), (f"{prefix}-2", "runs/p/c/mine"))
    ]
    for store in mine:
        store.put(f"{OWN}/x", b"")
    assert credential_owners(owner) == {"runs/p/c/mine", "runs/p/c/mine2", "runs/p/c/min"}
    assert revoke_credentials(owner, "runs/p/c/mine") == 3
    assert revoke_credentials(owner, "runs/p/c/mine") == 0
    for store in mine:
        with pytest.raises(StorageError, match="InvalidAccessKeyId"):
            store.put(f"{OWN}/x", b"")
    for prefix_of, run, lent in zip((prefix, prefix, f"{prefix}-2"), ("mine2", "min", "mine"), others, strict=True):
        minio_server.store(prefix_of, credentials=lent.text).put(f"runs/p/c/{run}/gang/x", b"")
    assert credential_owners(owner) == {"runs/p/c/mine2", "runs/p/c/min"}


@pytest.mark.tools
def test_access_keys_that_somebody_else_made_are_left_alone(minio_server, user):
    credentials = user()
    theirs = admin(minio_server, credentials)
    theirs.add_service_account(access_key="backup-key", secret_key="backup-secret", description="runs/p/c/mine")
    store = minio_server.store("scope", credentials=credentials)
    scoped_credentials(store, write=OWN, owner="runs/p/c/mine")
    assert credential_owners(store) == {"runs/p/c/mine"}
    assert revoke_credentials(store, "runs/p/c/mine") == 1
    assert [each["accessKey"] for each in json.loads(theirs.list_service_account(""))["accounts"]] == ["backup-key"]


@pytest.mark.tools
def test_an_access_key_ends_by_itself_where_no_one_takes_it_back(minio_server, user):
    credentials = user()
    lent = scoped_credentials(minio_server.store("scope", credentials=credentials), write=OWN)
    (listed,) = json.loads(admin(minio_server, credentials).list_service_account(""))["accounts"]
    ends = datetime.fromisoformat(listed["expiration"])
    assert lent.text.startswith(listed["accessKey"])
    assert 3500 < (ends - datetime.now(UTC)).total_seconds() <= 3600


@pytest.mark.tools
def test_a_site_whose_own_key_is_an_access_key_lends_as_well(minio_server, user):
    admin(minio_server, user()).add_service_account(access_key=(key := f"k{token_hex(4)}"), secret_key="site-secret")
    store = minio_server.store("scope", credentials=f"{key}:site-secret")
    lent = scoped_credentials(store, write=OWN)
    minio_server.store("scope", credentials=lent.text).put(f"{OWN}/x", b"")
    assert revoke_credentials(store, OWN) == 1
    store.put("still-there", b"")


@pytest.mark.tools
@pytest.mark.row("A2")
def test_a_key_that_may_make_none_of_its_own_lends_sessions_and_says_so(minio_server, user):
    store = minio_server.store("scope", credentials=user(denied=["admin:CreateServiceAccount"]))
    lent = scoped_credentials(store, write=OWN, read=("blobs/",))
    assert lent.kind == "session"
    scoped = minio_server.store("scope", credentials=lent.text)
    scoped.put(f"{OWN}/x", b"")
    with pytest.raises(StorageError, match="AccessDenied"):
        scoped.put("runs/p/c/mine/record.json", b"")
    assert revoke_credentials(store, OWN) == 0
    assert credential_owners(store) == frozenset()
    said = credential_policy(store)
    assert (said.kind, said.outlives_seconds) == ("session", 900)
    assert "up to 900 s after its end: the store's key may not handle access keys of its own" in str(said)


@pytest.mark.tools
def test_a_session_lasts_as_long_as_was_asked_for(minio_server, monkeypatch):
    answers = []
    read = sts_sessions._session
    monkeypatch.setattr(sts_sessions, "_session", lambda document: answers.append(document) or read(document))
    store = minio_server.store("scope")
    assert sts_sessions.assume(store.wire, policy(store, write=OWN), seconds=900)
    ends = datetime.fromisoformat(answers[0].partition(b"<Expiration>")[2].partition(b"<")[0].decode())
    assert 840 < (ends - datetime.now(UTC)).total_seconds() <= 900


@pytest.mark.tools
def test_what_a_store_lends_is_said_and_nothing_is_left_of_asking(minio_server, versitygw_server, tmp_path):
    store = minio_server.store(f"scope/{token_hex(4)}")
    assert str(credential_policy(store)) == "an access key for each run, deleted when the run ends"
    assert credential_owners(store) == frozenset()
    assert credential_policy(versitygw_server.store()).kind == "none"
    assert "neither access keys of MinIO nor STS" in str(credential_policy(versitygw_server.store()))
    assert "the store is a folder" in str(credential_policy(FolderStore(tmp_path)))


def test_no_credential_where_none_is_given(tmp_path):
    store = FolderStore(tmp_path)
    assert scoped_credentials(store, write=OWN) is None
    assert revoke_credentials(store, "runs/p/c/r") == 0
    assert credential_owners(store) == frozenset()


@pytest.mark.tools
def test_gateway_without_sts_gives_none(versitygw_server):
    assert scoped_credentials(versitygw_server.store(), write=OWN) is None
    assert revoke_credentials(versitygw_server.store(), OWN) == 0


@pytest.mark.tools
def test_wrong_key_gets_no_credential(minio_server):
    wrong = minio_server.store(credentials="gangline:wrong-secret-key")
    with pytest.raises(StorageError, match="a credential for one run was refused"):
        scoped_credentials(wrong, write=OWN)


def test_a_server_that_does_not_answer_is_an_error():
    nobody = open_store("s3://bucket", endpoint="http://127.0.0.1:1", credentials="a:b", deadline_seconds=0.3)
    for call in (lambda: scoped_credentials(nobody, write=OWN), lambda: revoke_credentials(nobody, OWN)):
        with pytest.raises(StorageError, match="no answer to a request about access keys"):
            call()


@pytest.mark.parametrize(
    "scope",
    [
        {"write": "runs/p/*"}, {"write": "runs/p/../q"}, {"write": ""}, {"write": "/"}, {"write": "runs/p//"},
        {"write": OWN, "read": ("runs/*",)}, {"write": OWN, "read": ("${aws:username}/",)},
        {"write": OWN, "listed": ("blobs/sha256",)}, {"write": OWN, "listed": ("runs/p?/",)},
    ],
)  # fmt: skip
def test_a_scope_that_could_name_more_than_was_meant_is_refused(scope):
    store = open_store("s3://bucket", endpoint="http://127.0.0.1:1", credentials="a:b")
    with pytest.raises(UsageError):
        policy(store, **scope)


def test_a_long_owner_is_described_by_its_digest():
    owners = [f"bucket/{'x' * 300}/{run}" for run in ("a", "b")]
    said = [minio_accounts._description(owner) for owner in owners]
    assert said[0] != said[1]
    assert max(map(len, said)) <= 256
