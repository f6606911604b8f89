"""Servers that write without a signature are told by what they wrote; nothing of the trial stays."""

import http.server
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from secrets import token_hex

import pytest
import urllib3
from minio import MinioAdmin
from minio.credentials import StaticProvider
from tests.loopback import listening

from gangline.storage.folder.store import FolderStore
from gangline.storage.open import open_store
from gangline.storage.s3 import unsigned_writes
from gangline.storage.s3.run_credentials import scoped_credentials
from gangline.storage.s3.unsigned_writes import UNSIGNED, accepts_unsigned_writes


@contextmanager
def proxied(server, *, refuses=True):
    """Address of a proxy before `server` that refuses requests whose payload is unsigned, if it is told to."""
    pool = urllib3.PoolManager(retries=False)

    class Proxy(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if refuses and self.headers.get("x-amz-content-sha256", "").upper() == UNSIGNED:
                self.send_error(403)
                return
            answer = pool.request(self.command, server.endpoint + self.path, body=body, headers=dict(self.headers))
            self.send_response(answer.status)
            for name in ("ETag", "Last-Modified", "x-minio-error-code"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            size = answer.headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(answer.data))
            self.send_header("Content-Length", size)
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else answer.data)

        do_HEAD = do_GET = do_DELETE = do_PUT  # noqa: N815

        def log_message(self, *_):
            pass

    with listening(Proxy) as url:
        yield url


def test_a_folder_takes_no_requests_at_all(tmp_path):
    assert not accepts_unsigned_writes(FolderStore(tmp_path))


@pytest.mark.tools
@pytest.mark.parametrize(("kind", "writes"), [("minio", True), ("versitygw", False)])
def test_a_server_is_recognized_by_its_writes(kind, writes, request):
    server = request.getfixturevalue(f"{kind}_server")
    store = server.store(f"unsigned/{token_hex(4)}")
    assert accepts_unsigned_writes(store) is writes
    assert store.list("") == []


@pytest.mark.tools
@pytest.mark.parametrize("form", ["_upload", "_archive"])
def test_either_form_is_enough(minio_server, monkeypatch, form):
    """Releases and forks exist that mend one alone."""
    monkeypatch.setattr(unsigned_writes, form, lambda store, path: None)
    assert accepts_unsigned_writes(minio_server.store(token_hex(4)))


@pytest.mark.tools
def test_a_session_is_tried_too(minio_server):
    store = minio_server.store(token_hex(4))
    lent = scoped_credentials(store, write="probe")
    assert accepts_unsigned_writes(open_store(store.url, credentials=lent.text))


@pytest.mark.tools
@pytest.mark.parametrize("refuses", [True, False])
def test_a_proxy_that_refuses_unsigned_payloads_is_enough(minio_server, refuses):
    with proxied(minio_server, refuses=refuses) as endpoint:
        store = minio_server.store(token_hex(4), endpoint=endpoint)
        assert accepts_unsigned_writes(store) is not refuses
        store.put("signed", b"as before")
        assert store.get("signed").data == b"as before"


@pytest.mark.tools
@pytest.mark.row("A2")
def test_what_limits_of_a_run_rest_on(minio_server):
    """A gang reads the names of other keys of its user, and writes with their rights where no signature is needed."""
    prefix = token_hex(4)
    site = minio_server.store(prefix)
    mine, other = (scoped_credentials(site, write=f"runs/p/c/{each}/gang") for each in ("mine", "other"))
    access_key, secret = mine.text.split(":")
    admin = MinioAdmin(
        endpoint=f"127.0.0.1:{minio_server.port}", credentials=StaticProvider(access_key, secret), secure=False
    )
    names = {each["accessKey"] for each in json.loads(admin.list_service_account(""))["accounts"]}
    stolen = next(name for name in names if other.text.startswith(name))
    forger = minio_server.store(prefix, credentials=f"{stolen}:not-its-secret")
    unsigned_writes._upload(forger, f"{prefix}/runs/p/c/other/gang/metrics.jsonl")
    assert site.get("runs/p/c/other/gang/metrics.jsonl").data == b"x", (
        "mended: threat model and stores.md say otherwise"
    )


@pytest.mark.tools
@pytest.mark.parametrize(("kind", "warns"), [("minio", True), ("versitygw", False)])
def test_both_doctors_warn_of_an_affected_server_and_of_no_other(kind, warns, request, tmp_path):
    server = request.getfixturevalue(f"{kind}_server")
    (tmp_path / "line.toml").write_text('project = { name = "curve", command = ["true"] }\n')
    (tmp_path / "site.toml").write_text(
        f'store = {{ url = "s3://{server.bucket}/{token_hex(4)}", endpoint = "{server.endpoint}", '
        'credentials = "secret:env:STORE" }'
    )
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)

    def said(*words):
        command = [sys.executable, "-m", "gangline", *words, "--site", "site.toml"]
        environ = {**os.environ, "STORE": server.credentials}
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)

    store, machine = said("store", "doctor"), said("doctor")
    assert store.returncode == 0, store.stderr
    assert ("GHSA-9c4q-hq6p-c237" in store.stdout) is warns
    assert ("GHSA-9c4q-hq6p-c237" in " ".join(machine.stdout.split())) is warns, machine.stdout
    assert json.loads(said("store", "doctor", "--json").stdout)["accepts_unsigned_writes"] is warns
