"""Requests to registries that misbehave: a server on loopback that answers what a test tells it to."""

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gangline.build.image_registry.credentials import RegistryLogin
from gangline.build.image_registry.http import RegistryHttp
from gangline.build.image_registry.reference import ImageReference
from gangline.build.image_registry.repository import ImageRepository
from gangline.build.oci import Descriptor, ImageLayout, LayerMember, Platform
from gangline.build.oci.documents import LAYER, MANIFEST
from gangline.errors import ConfigError, IntegrityError, StorageError

LOGIN = RegistryLogin("ana", "canary-9f")
BLOB = b"content of a blob"
DESCRIPTOR = Descriptor(media_type=LAYER, digest=f"sha256:{hashlib.sha256(BLOB).hexdigest()}", size_bytes=len(BLOB))


class Stub:
    """Answers by `method path`: status, headers, body; or a function of the request's headers to those."""

    def __init__(self):
        self.answers = {}
        self.seen = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                length = int(self.headers.get("Content-Length") or 0)
                self.rfile.read(length)
                path = self.path.partition("?")[0]
                stub.seen.append((self.command, self.path, dict(self.headers)))
                found = stub.answers.get(f"{self.command} {path}", (404, {}, b""))
                status, headers, body = found(self.headers) if callable(found) else found
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if "Content-Length" not in headers:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, *_):
                pass

        for verb in ("GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"):
            setattr(Handler, f"do_{verb}", Handler.answer)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.host = f"127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def registry(self, login=LOGIN):
        return ImageRepository(ImageReference(self.host, "team/a"), RegistryHttp(self.host, login, named_by_site=True))

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def stub():
    made = Stub()
    yield made
    made.close()


@pytest.fixture
def other():
    made = Stub()
    yield made
    made.close()


BLOB_PATH = f"GET /v2/team/a/blobs/{DESCRIPTOR.digest}"


def demanding(wanted, challenge, body=BLOB):
    def answer(headers):
        granted = headers.get("Authorization") == wanted
        return (200, {}, body) if granted else (401, {"WWW-Authenticate": challenge}, b"")

    return answer


def test_a_basic_challenge_is_answered_once_and_remembered(stub):
    stub.answers[BLOB_PATH] = demanding(f"Basic {LOGIN.basic}", 'Basic realm="x"')
    registry = stub.registry()
    assert registry.read(DESCRIPTOR) == registry.read(DESCRIPTOR) == BLOB
    assert [("Authorization" in headers) for _, _, headers in stub.seen] == [False, True, True]


def test_a_bearer_challenge_is_traded_for_a_token_of_the_scope(stub):
    realm = f"http://{stub.host}/token"
    stub.answers[BLOB_PATH] = demanding("Bearer t0k3n", f'Bearer realm="{realm}",service="registry",scope="other:*"')
    stub.answers["GET /token"] = (200, {}, b'{"token": "t0k3n"}')
    assert stub.registry().read(DESCRIPTOR) == BLOB
    _, path, headers = stub.seen[1]
    assert "scope=repository%3Ateam%2Fa%3Apull" in path
    assert "service=registry" in path
    assert headers["Authorization"] == f"Basic {LOGIN.basic}"


def test_a_mount_asks_for_both_repositories(stub):
    stub.answers["POST /v2/team/a/blobs/uploads/"] = demanding("Bearer t", f'Bearer realm="http://{stub.host}/token"')
    stub.answers["GET /token"] = (200, {}, b'{"token": "t"}')
    stub.answers[f"HEAD /v2/base/b/blobs/{DESCRIPTOR.digest}"] = (200, {}, b"")
    registry = stub.registry()
    base = ImageRepository(ImageReference(stub.host, "base/b"), registry._http)
    assert registry._mount(DESCRIPTOR, base) is False  # the answer was 200, not "made"
    (asked,) = (path for _, path, _ in stub.seen if path.startswith("/token"))
    assert "scope=repository%3Ateam%2Fa%3Apull%2Cpush&scope=repository%3Abase%2Fb%3Apull" in asked


def test_without_a_login_a_token_is_asked_for_without_one(stub):
    stub.answers[BLOB_PATH] = demanding("Bearer t", f'Bearer realm="http://{stub.host}/token"')
    stub.answers["GET /token"] = (200, {}, b'{"access_token": "t"}')
    assert stub.registry(login=None).read(DESCRIPTOR) == BLOB
    assert "Authorization" not in stub.seen[1][2]


@pytest.mark.parametrize("token", [b"no json", b"[]", b"{}", b"[" * 100_000])
def test_an_answer_without_a_token_is_said_so(stub, token):
    stub.answers[BLOB_PATH] = demanding("Bearer t", f'Bearer realm="http://{stub.host}/token"')
    stub.answers["GET /token"] = (200, {}, token)
    with pytest.raises(StorageError, match="wanted a token as JSON"):
        stub.registry().read(DESCRIPTOR)


@pytest.mark.parametrize("realm", ["http://evil.example/token", "ftp://127.0.0.1/token", "", "file:///etc/passwd"])
def test_credentials_never_go_to_a_realm_without_tls(stub, realm):
    stub.answers[BLOB_PATH] = (401, {"WWW-Authenticate": f'Bearer realm="{realm}"'}, b"")
    with pytest.raises(IntegrityError, match="over TLS"):
        stub.registry().read(DESCRIPTOR)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_login_is_a_mistake_of_the_site_without_its_password(stub, status):
    stub.answers[BLOB_PATH] = (status, {"WWW-Authenticate": 'Basic realm="x"'}, b"")
    with pytest.raises(ConfigError, match="docker login") as refused:
        stub.registry().read(DESCRIPTOR)
    assert "canary" not in str(refused.value)
    with pytest.raises(ConfigError, match="docker login"):
        stub.registry(login=None).read(DESCRIPTOR)


def test_a_redirect_to_another_host_is_followed_without_credentials(stub, monkeypatch):
    granted = f"Basic {LOGIN.basic}"
    stub.answers[BLOB_PATH] = lambda headers: (
        (307, {"Location": f"http://{stub.host}/here"}, b"")
        if headers.get("Authorization") == granted
        else (401, {"WWW-Authenticate": 'Basic realm="x"'}, b"")
    )
    stub.answers["GET /here"] = lambda _: (307, {"Location": "https://cdn.example/blob"}, b"")
    registry = stub.registry()
    sent = []
    real = RegistryHttp._send

    def send(wire, method, url, headers, body):
        if url.startswith("https://cdn.example/"):
            sent.append(dict(headers))
            return real(wire, method, f"http://{stub.host}/cdn", headers, body)
        return real(wire, method, url, headers, body)

    stub.answers["GET /cdn"] = (200, {}, BLOB)
    monkeypatch.setattr(RegistryHttp, "_send", send)
    assert registry.read(DESCRIPTOR) == BLOB
    assert sent == [{}]
    assert "Authorization" in stub.seen[-2][2]


def test_a_redirect_away_from_tls_and_a_circle_are_refused(stub, other):
    stub.answers[BLOB_PATH] = (307, {"Location": f"http://{other.host}/blob"}, b"")
    with pytest.raises(IntegrityError, match="not over TLS"):
        stub.registry().read(DESCRIPTOR)
    assert other.seen == []
    stub.answers[BLOB_PATH] = (307, {"Location": BLOB_PATH.removeprefix("GET ")}, b"")
    with pytest.raises(StorageError, match="redirected"):
        stub.registry().read(DESCRIPTOR)


def test_uploads_are_not_sent_to_another_host(stub, other, tmp_path):
    layout = ImageLayout.create(tmp_path / "l")
    image = layout.add_image([layout.add_layer([LayerMember("a")])])
    stub.answers["POST /v2/team/a/blobs/uploads/"] = (202, {"Location": f"http://{other.host}/steal"}, b"")
    with pytest.raises(IntegrityError, match="another host"):
        stub.registry().push(layout, image, tag="t")
    assert other.seen == []


@pytest.mark.parametrize("body", [b"other content of it", BLOB[:-1], BLOB + b"x" * 100, b""])
def test_a_blob_that_is_not_what_its_digest_says_is_refused(stub, body, tmp_path):
    stub.answers[BLOB_PATH] = (200, {}, body)
    with pytest.raises(IntegrityError):
        stub.registry().read(DESCRIPTOR)
    with pytest.raises(IntegrityError):
        stub.registry().fetch(DESCRIPTOR, tmp_path / "blob")
    assert list(tmp_path.iterdir()) == []


def test_an_answer_that_breaks_off_may_be_asked_again(stub):
    stub.answers[BLOB_PATH] = (200, {"Content-Length": str(len(BLOB) + 5), "Connection": "close"}, BLOB)
    with pytest.raises(StorageError, match="response ended after"):
        stub.registry().read(DESCRIPTOR)


def test_a_busy_registry_is_asked_again_and_then_reported(stub):
    answers = iter([(503, {}, b""), (429, {"Retry-After": "0"}, b""), (200, {}, BLOB)])
    stub.answers[BLOB_PATH] = lambda _: next(answers)
    assert stub.registry().read(DESCRIPTOR) == BLOB
    stub.answers[BLOB_PATH] = (503, {}, b"")
    with pytest.raises(StorageError, match="503"):
        stub.registry().read(DESCRIPTOR)


def test_docker_hub_is_asked_where_its_api_is(monkeypatch):
    asked = []

    def send(wire, method, url, headers, body):
        asked.append(url)
        raise StorageError("not reached")

    monkeypatch.setattr(RegistryHttp, "_send", send)
    with pytest.raises(StorageError):
        ImageRepository.open(
            ImageReference.parse("docker.io/library/python:3"), {"HOME": "/nowhere"}, named_by_site=True
        ).resolve("3")
    assert asked == ["https://registry-1.docker.io/v2/library/python/manifests/3"]


def test_no_one_there_is_safe_to_repeat(stub):
    gone = ImageRepository(ImageReference("127.0.0.1:1", "a"), RegistryHttp("127.0.0.1:1", None, named_by_site=True))
    with pytest.raises(StorageError, match="did not answer"):
        gone.has(DESCRIPTOR)


def manifest_of(digest, data, kind=MANIFEST):
    return {f"GET /v2/team/a/manifests/{digest}": (200, {"Content-Type": kind}, data)}


@pytest.mark.parametrize("data", [b"[]", b"{}", b"\x00" * 100, b"[" * 50_000, b'{"schemaVersion": 1}'])
def test_hostile_manifests_are_refused(stub, data):
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    stub.answers |= manifest_of(digest, data)
    with pytest.raises(IntegrityError):
        stub.registry().image(ImageReference(stub.host, "team/a", digest=digest), Platform())


def test_a_manifest_of_another_digest_or_kind_is_refused(stub):
    wanted = "sha256:" + "0" * 64
    stub.answers |= manifest_of(wanted, b"{}")
    with pytest.raises(IntegrityError, match="does not match its digest"):
        stub.registry().resolve(wanted)
    stub.answers |= manifest_of("tag", b"<html>", kind="text/html")
    with pytest.raises(IntegrityError, match="text/html"):
        stub.registry().resolve("tag")


def test_an_endless_manifest_is_not_read_to_its_end(stub):
    stub.answers |= manifest_of("tag", b"{" + b" " * (5 << 20))
    with pytest.raises(IntegrityError, match="at most"):
        stub.registry().resolve("tag")


def test_an_index_without_this_platform_says_so(stub):
    entry = {"mediaType": MANIFEST, "digest": "sha256:" + "0" * 64, "size": 2,
             "platform": {"os": "linux", "architecture": "riscv64"}}  # fmt: skip
    kind = "application/vnd.oci.image.index.v1+json"
    stub.answers |= manifest_of("tag", json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode(), kind)
    with pytest.raises(ConfigError, match="no image for linux/amd64"):
        stub.registry().image(ImageReference(stub.host, "team/a", tag="tag"), Platform())


def test_a_push_that_reads_back_as_something_else_is_reported(stub, tmp_path):
    layout = ImageLayout.create(tmp_path / "l")
    image = layout.add_image([layout.add_layer([LayerMember("a")])])
    for path in (layout.folder / "blobs/sha256").iterdir():
        stub.answers[f"HEAD /v2/team/a/blobs/sha256:{path.name}"] = (200, {}, b"")
    stub.answers["PUT /v2/team/a/manifests/t"] = (201, {}, b"")
    with pytest.raises(IntegrityError, match="what is read back differs"):
        stub.registry().push(layout, image, tag="t")


def test_the_password_is_in_no_repr():
    assert "canary" not in repr(LOGIN)
    assert base64.b64decode(LOGIN.basic) == b"ana:canary-9f"
