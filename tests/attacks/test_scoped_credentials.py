"""A2: what a gang's own credential cannot do, by more than 500 requests to a real MinIO that were signed with it.

All of it rests on the server checking signatures. MinIO's open server does not for two kinds of writes; what a gang
can do there is in `tests/storage/s3/test_unsigned_writes.py`, and a proxy has to refuse them.
"""

import hashlib
import io
import tarfile
from base64 import b64encode
from secrets import token_hex
from urllib.parse import quote

import pytest
from minio import Minio
from minio.commonconfig import ENABLED
from minio.versioningconfig import VersioningConfig
from tests.attacks.raw_requests import Attempt, Sender, form_upload
from tests.contracts.storage.servers import S3Server

from gangline.storage.objects.protocol import list_all
from gangline.storage.s3.run_credentials import scoped_credentials

pytestmark = [pytest.mark.row("A2"), pytest.mark.tools]
RUN = "runs/p/c/mine"
OWN = f"{RUN}/gang"
DONOR = "runs/p/c/donor/checkpoints/step-00000001"
BLOB = f"blobs/sha256/{'a' * 64}"
CANARY = b"canary-of-another"
READABLE = (BLOB, f"{RUN}/plan.json", f"{DONOR}/manifest.json")
FORBIDDEN = (
    f"{RUN}/record.json", f"{RUN}/lease.json", f"{RUN}/model/model.sig", f"{RUN}/model/model.safetensors",
    f"{RUN}/report.html", f"{RUN}/gangster/x", f"{RUN}/gang-2/x", f"{RUN}2/gang/x", "runs/p/c/other/record.json",
    "runs/p/c/other/gang/metrics.jsonl", "runs/p/c/donor/record.json", f"{DONOR}0/manifest.json",
    "runs/q/c/mine/gang/x", "models/p/1.json", "models/p/aliases/prod.json", "open/p/mine", "probe/x",
)  # fmt: skip
"""Keys that are there and hold the canary."""


@pytest.fixture
def place(minio_server):
    """A store in a bucket with versions, another store in it, and another bucket."""
    client = Minio(f"127.0.0.1:{minio_server.port}", minio_server.access_key, minio_server.secret_key, secure=False)
    names = [f"scoped-{token_hex(4)}" for _ in range(2)]
    for name in names:
        client.make_bucket(name)
    client.set_bucket_versioning(names[0], VersioningConfig(ENABLED))
    server = S3Server(
        "minio", minio_server.folder, bucket=names[0], secret_key=minio_server.secret_key, port=minio_server.port
    )
    for prefix in ("site", "other-site"):
        for key in (*FORBIDDEN, *READABLE, f"{OWN}/secret-of-another-site"):
            server.store(prefix).put(key, CANARY)
    server.store("site").put(f"{OWN}/metrics.jsonl", b"mine")
    client.put_object(names[1], "object", io.BytesIO(CANARY), len(CANARY))
    return server, client, names[1]


def lend(server):
    return scoped_credentials(
        server.store("site"),
        write=OWN,
        read=("blobs/", f"{RUN}/plan.json", f"{DONOR}/"),
        listed=(f"{DONOR}/",),
    )


def test_a_credential_does_what_its_gang_needs(place):
    server, _, _ = place
    store = server.store("site", credentials=lend(server).text)
    etag = store.put(f"{OWN}/ranks/0.jsonl", b"1")
    assert store.compare_and_set(f"{OWN}/ranks/0.jsonl", b"2", etag)
    assert store.put_if_absent(f"{OWN}/checkpoints/latest.json", b"{}")
    with store.upload(f"{OWN}/checkpoints/step-00000001/big") as upload:
        upload.part(b"x" * (5 << 20))
        upload.part(b"y")
    with store.upload(f"{OWN}/given-up") as upload:
        upload.abort()
        upload.complete = lambda: None
    assert [each.key for each in list_all(store, f"{OWN}/checkpoints/")]
    assert [each.key for each in list_all(store, f"{DONOR}/")] == [f"{DONOR}/manifest.json"]
    assert all(store.get(key).data == CANARY for key in READABLE)
    store.delete(f"{OWN}/ranks/0.jsonl")
    assert store.head(f"{OWN}/ranks/0.jsonl") is None
    assert server.store("site").open_uploads() == []


def test_more_than_500_requests_off_the_prefix_are_denied(place):
    server, client, other_bucket = place
    credentials = lend(server).text
    with server.store("site").upload("runs/p/c/other/gang/big") as foreign:
        foreign.part(CANARY)
        before = objects(client, server.bucket)
        attempts = [
            *on_keys(server.bucket, "site/"), *on_keys(server.bucket, "other-site/"), *on_odd_keys(server.bucket),
            *on_versions(client, server.bucket), *on_uploads(server.bucket, foreign.upload_id),
            *copies(server.bucket), *listings(server.bucket), *on_bucket(server.bucket), *on_bucket(other_bucket),
            *on_server(credentials), *forms(credentials, server.bucket), *unpacked(server.bucket),
        ]  # fmt: skip
        granted, unsigned = let_in(Sender(server.port, credentials), attempts)
        assert granted == [], "\n".join(map(str, granted))
        assert not unsigned, "\n".join(map(str, unsigned))
        assert len(attempts) > 900
        after = objects(client, server.bucket)
        new = {key for key in after if key not in before}
        assert {key: after.get(key) for key in before} == before
        assert all(key.startswith(f"site/{OWN}/") for key in new), new
        assert all(CANARY not in client.get_object(server.bucket, key).read() for key in new)
    assert server.store("site").get("runs/p/c/other/gang/big").data == CANARY


def let_in(sender, attempts):
    """Requests that were granted, or whose answer holds what is another's; and how many were signed in vain."""
    found, unsigned = [], []
    for each in attempts:
        status, body = sender.send(each)
        if CANARY in body or (status < 300 and not each.what.startswith("judged by what it does:")):
            found.append((each.what, each.method, each.path, dict(each.query), status, body[:200]))
        if b"<Code>SignatureDoesNotMatch<" in body:
            unsigned.append(each)
    return found, unsigned


def objects(client, bucket):
    """Key to versions of all that is there, but for what the gang may write."""
    found = {}
    for each in client.list_objects(bucket, recursive=True, include_version=True):
        found.setdefault(each.object_name, []).append((each.version_id, each.is_delete_marker))
    return {key: sorted(each) for key, each in found.items() if ".uploads~/" not in key}


def on_keys(bucket, root):
    """All verbs on keys that are there."""
    writes = [
        ("PUT", {}), ("DELETE", {}), ("POST", {"uploads": ""}), ("PUT", {"tagging": ""}), ("PUT", {"acl": ""}),
        ("PUT", {"retention": ""}), ("PUT", {"legal-hold": ""}), ("DELETE", {"tagging": ""}), ("POST", {"restore": ""}),
    ]  # fmt: skip
    reads = [
        ("GET", {}),
        ("HEAD", {}),
        ("GET", {"tagging": ""}),
        ("GET", {"attributes": ""}),
        ("GET", {"uploadId": "x"}),
    ]
    keys = FORBIDDEN if root == "site/" else (*FORBIDDEN[:6], *READABLE)
    for key in keys:
        path = f"/{bucket}/{root}{key}"
        for method, query in (*writes, *reads):
            yield Attempt(f"{method} {list(query)}", method, path, query, body=b"forged" if method == "PUT" else b"")
        for method in ("GET", "PUT", "DELETE"):
            yield Attempt("presigned", method, path, signed="url")
        yield Attempt("force delete", "DELETE", path, headers={"x-minio-force-delete": "true"})
    for key in READABLE:
        for method, query in writes:
            yield Attempt(f"{method} {list(query)}", method, f"/{bucket}/{root}{key}", query, body=b"forged")


def on_odd_keys(bucket):
    """Ways to say a key so that a check and the store read it differently."""
    odd = [
        f"{OWN}/../record.json", f"{OWN}/..%2Frecord.json", f"{OWN}/%2e%2e/record.json",
        f"{OWN}/./../record.json", f"{OWN}//../record.json", f"{OWN}/x/../../record.json", f"{OWN}%2f..%2frecord.json",
        f"{OWN}", f"{OWN}%00/../record.json", f"{RUN}//record.json", f"{RUN}/%2A", f"{RUN}/%3Fecord.json",
        "runs/p/c/%2A/gang/x",
        "runs/p/c/min%3F/gang/x", f"{RUN.upper()}/gang/x", f"{RUN}/GANG/x", f"{RUN}%20/gang/x", f"{RUN}/gang%20/x",
        f"%2e/{RUN}/record.json", f"../site/{RUN}/record.json", f"{OWN}\\..\\record.json",
        ".uploads~/runs/p/c/other/gang/big/~0", f".uploads~/{RUN}/record.json/~0", f".uploads~/{OWN}", ".uploads~/x",
        f".uploads~/{OWN}/../../record.json/~0", "%24%7Baws%3Ausername%7D/x",
    ]  # fmt: skip
    for key in odd:
        for method in ("PUT", "GET", "DELETE"):
            yield Attempt(f"odd {method}", method, f"/{bucket}/site/{key}", body=b"forged" if method == "PUT" else b"")


def on_versions(client, bucket):
    for each in client.list_objects(bucket, prefix=f"site/{RUN}/record", recursive=True, include_version=True):
        for method in ("GET", "DELETE", "HEAD"):
            query = {"versionId": each.version_id}
            yield Attempt("a version", method, f"/{bucket}/{each.object_name}", query)
    for each in client.list_objects(bucket, prefix=f"site/{OWN}/metrics", recursive=True, include_version=True):
        query = {"versionId": each.version_id}  # its own, but history is nobody's to change
        yield Attempt("own version", "DELETE", f"/{bucket}/{each.object_name}", query)
    for key in FORBIDDEN[:4]:
        yield Attempt("null version", "DELETE", f"/{bucket}/site/{key}", {"versionId": "null"})


def on_uploads(bucket, upload_id):
    path = f"/{bucket}/site/runs/p/c/other/gang/big"
    part = {"partNumber": "1", "uploadId": upload_id}
    yield Attempt("foreign part", "PUT", path, part, body=b"forged")
    yield Attempt(
        "foreign part by copy", "PUT", path, part, {"x-amz-copy-source": f"/{bucket}/site/{OWN}/metrics.jsonl"}
    )
    yield Attempt("foreign parts listed", "GET", path, {"uploadId": upload_id})
    yield Attempt("foreign abort", "DELETE", path, {"uploadId": upload_id})
    done = b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>x</ETag></Part></CompleteMultipartUpload>"
    yield Attempt("foreign complete", "POST", path, {"uploadId": upload_id}, body=done)
    own = f"/{bucket}/site/{OWN}/mine"
    for method in ("PUT", "GET", "POST"):
        yield Attempt(
            "foreign id, own key", method, own, part if method == "PUT" else {"uploadId": upload_id}, body=done
        )
    yield Attempt("judged by what it does: foreign id aborted, own key", "DELETE", own, {"uploadId": upload_id})
    for prefix in ("", "site/", "site/runs/p/c/other/gang/big", f"site/{OWN}/", f"site/{OWN}/mine"):
        yield Attempt("uploads listed", "GET", f"/{bucket}", {"uploads": "", "prefix": prefix})


def copies(bucket):
    own = f"/{bucket}/site/{OWN}/copy"
    for key in FORBIDDEN:
        for source in (f"/{bucket}/site/{key}", f"{bucket}/site/{key}", f"/{bucket}/site/{quote(key, safe='')}"):
            yield Attempt("copied from", "PUT", own, headers={"x-amz-copy-source": source})
        source = f"/{bucket}/site/{OWN}/metrics.jsonl"
        yield Attempt("copied to", "PUT", f"/{bucket}/site/{key}", headers={"x-amz-copy-source": source})
    for key in (f"{OWN}/../record.json", f"{OWN}/..%2frecord.json", f"{OWN}/%2e%2e/record.json"):
        yield Attempt("copied from odd", "PUT", own, headers={"x-amz-copy-source": f"/{bucket}/site/{key}"})


def listings(bucket):
    prefixes = [
        "", "site/", "site/runs/", "site/runs/p/", "site/runs/p/c/", f"site/{RUN}", f"site/{RUN}/", f"site/{OWN}",
        "site/blobs/", "site/blobs/sha256/", "site/models/", "site/.uploads~/", f"site/.uploads~/{OWN}/", "site/open/",
        "other-site/", f"other-site/{OWN}/", f"site/{RUN}/plan.json", "site/runs/p/c/donor/",
        "site/runs/p/c/*/gang/", "*",
    ]  # fmt: skip
    kinds = [
        {"list-type": "2"},
        {},
        {"versions": ""},
        {"list-type": "2", "delimiter": "/"},
        {"list-type": "2", "metadata": "true"},
    ]
    for prefix in prefixes:
        for kind in kinds:
            yield Attempt(f"listed {kind}", "GET", f"/{bucket}", {**kind, "prefix": prefix})
        yield Attempt("listed by URL", "GET", f"/{bucket}", {"list-type": "2", "prefix": prefix}, signed="url")
    own = f"site/{OWN}/"
    for kind in ("", "list-type=2&", "versions=&", "uploads=&"):
        for first, second in (("site/models/", own), ("site/blobs/", own), ("", own)):
            pair = f"prefix={quote(first, safe='')}&prefix={quote(second, safe='')}"
            yield Attempt("listed, prefix twice", "GET", f"/{bucket}?{kind}{pair}")
    body = f"<Delete><Object><Key>site/{RUN}/record.json</Key></Object></Delete>".encode()
    md5 = {"Content-MD5": b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()}
    yield Attempt("judged by what it does: delete many", "POST", f"/{bucket}", {"delete": ""}, md5, body)


def on_bucket(bucket):
    for name in (
        "location", "policy", "policyStatus", "versioning", "lifecycle", "cors", "encryption", "replication", "website",
        "notification", "object-lock", "tagging", "logging", "acl", "accelerate", "requestPayment",
    ):  # fmt: skip
        yield Attempt(f"bucket's {name}", "GET", f"/{bucket}", {name: ""})
    for name in (
        "policy",
        "versioning",
        "lifecycle",
        "encryption",
        "replication",
        "notification",
        "object-lock",
        "tagging",
    ):
        yield Attempt(f"set bucket's {name}", "PUT", f"/{bucket}", {name: ""}, body=b"<x/>")
    for name in ("policy", "lifecycle", "encryption", "tagging", "replication"):
        yield Attempt(f"delete bucket's {name}", "DELETE", f"/{bucket}", {name: ""})
    yield Attempt(
        "events", "GET", f"/{bucket}", {"events": "s3:ObjectCreated:*", "prefix": "", "suffix": "", "ping": "1"}
    )
    yield Attempt("delete bucket", "DELETE", f"/{bucket}")
    yield Attempt("force delete bucket", "DELETE", f"/{bucket}", headers={"x-minio-force-delete": "true"})
    yield Attempt("head bucket", "HEAD", f"/{bucket}")
    yield Attempt("make bucket", "PUT", f"/{bucket}-new")


def on_server(credentials):
    yield Attempt("buckets", "GET", "/")
    admin = "/minio/admin/v3/"
    for method, name in (
        ("GET", "list-users"), ("GET", "info"), ("GET", "list-canned-policies"), ("GET", "get-config"),
        ("PUT", "add-user"), ("PUT", "add-service-account"), ("POST", "update-service-account"), ("GET", "list-groups"),
        ("GET", "export-iam"), ("POST", "service"), ("GET", "datausageinfo"), ("GET", "trace"),
    ):  # fmt: skip
        query = {"accessKey": credentials.split(":")[0]} if "account" in name or "user" in name else {}
        yield Attempt(f"admin {name}", method, admin + name, query, body=b"{}" if method != "GET" else b"")
    body = b"Action=AssumeRole&Version=2011-06-15&DurationSeconds=3600"
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    yield Attempt("another credential", "POST", "/", headers=form, body=body, signed="sts")


def forms(credentials, bucket):
    for key in FORBIDDEN:
        headers, body = form_upload(credentials, bucket, f"site/{key}")
        yield Attempt("form", "POST", f"/{bucket}", headers=headers, body=body, signed="form")


def unpacked(bucket):
    """MinIO takes an archive apart where a header asks it to, below a prefix that another header names."""
    for name in ("record.json", "../record.json", "/record.json", f"../../../../../site/{RUN}/record.json"):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            info = tarfile.TarInfo(name)
            info.size = 6
            archive.addfile(info, io.BytesIO(b"forged"))
        for prefix in ("", f"site/{RUN}", "site/models/p", f"site/{OWN}/.."):
            headers = {"X-Amz-Meta-Snowball-Auto-Extract": "true"}
            headers |= {"X-Amz-Meta-Minio-Snowball-Prefix": prefix} if prefix else {}
            path = f"/{bucket}/site/{OWN}/archive.tar"
            yield Attempt("judged by what it does: unpack", "PUT", path, headers=headers, body=packed.getvalue())
