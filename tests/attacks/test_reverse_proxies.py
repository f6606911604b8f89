"""L5, A5: nginx and Caddy before the service, by the configurations of the guide and as the real programs."""

import re
import shutil
import ssl
import subprocess
import time
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import httpx
import pytest
from tests.attacks.served import MIB, ROOT, room_for_files, service
from tests.attacks.test_held_connections import THREE, Holding, good_push
from tests.forge.test_tls import write_certificate
from tests.ports import free_port
from tests.serve.world import run_id

from gangline.serve.web.rate_limits import RequestLimits

pytestmark = [pytest.mark.row("L5", "A5"), pytest.mark.long]
GUIDE = (ROOT / "docs/guides/service-for-a-team.md").read_text()
GUESSES = RequestLimits().failed_logins_burst
HELLO = b"\x16\x03\x01\x40\x00"
"""Begin of a TLS handshake that announces 16 KiB."""


def block(language):
    return re.search(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)[1]


def replaced(text, **words):
    for old, new in words.items():
        assert old in text, f"the guide's configuration has no {old}"
        text = text.replace(old, new)
    return text


def nginx(folder, port, served, certificate):
    text = replaced(block("nginx"), **{
        "listen 443": f"listen 127.0.0.1:{port}", "127.0.0.1:8321": f"127.0.0.1:{served.port}",
        "/etc/ssl/gangline.pem": str(certificate), "/etc/ssl/gangline.key": str(certificate),
    })  # fmt: skip
    paths = "".join(
        f"{kind}_temp_path {folder}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    connections = re.findall(r"`(worker_connections \d+)`", GUIDE)[-1]
    files = re.search(r"`(worker_rlimit_nofile \d+)`", GUIDE)[1]
    main = f"daemon off; pid {folder}/pid; error_log {folder}/log; {files}; events {{ {connections}; }}"
    (folder / "nginx.conf").write_text(f"{main} http {{ access_log off; {paths} {text} }}")
    return ["nginx", "-e", f"{folder}/log", "-c", f"{folder}/nginx.conf"]


def caddy(folder, port, served, certificate):
    text = replaced(block("caddyfile"), **{
        "{\n\tservers": "{\n\tadmin off\n\tauto_https off\n\tservers", "127.0.0.1:8321": f"127.0.0.1:{served.port}",
        "gangline.example {": f"https://localhost:{port} {{\n\ttls {certificate} {certificate}",
    })  # fmt: skip
    (folder / "Caddyfile").write_text(text)
    return ["caddy", "run", "--config", f"{folder}/Caddyfile", "--adapter", "caddyfile"]


@contextmanager
def running(command, folder, port):
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    environ = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(folder)}
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(command, env=environ, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + 30
        while not answers(port):
            assert process.poll() is None, (folder / "output").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield
    finally:
        process.terminate()  # both wait for what is under way
        time.sleep(0.5)
        process.kill()
        process.wait(30)


def client(port, address="127.0.0.1", **options):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    transport = httpx.HTTPTransport(local_address=address, verify=context)
    return httpx.Client(base_url=f"https://localhost:{port}", transport=transport, timeout=30, **options)


def answers(port):
    try:
        with client(port) as asking:
            return asking.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module", params=[nginx, caddy], ids=["nginx", "caddy"])
def before(request, tmp_path_factory):
    """The service and the port of the proxy before it."""
    room_for_files(4096)
    folder, port = tmp_path_factory.mktemp("proxy"), free_port()
    folder.chmod(0o755)
    certificate = write_certificate(folder / "certificate.pem", "localhost")
    with ExitStack() as stack:
        served = stack.enter_context(service(tmp_path_factory.mktemp("service"), "127.0.0.1"))
        stack.enter_context(running(request.param(folder, port, served, certificate), folder, port))
        yield served, port


def test_pages_pushes_and_events_pass(before):
    served, port = before
    with client(port, headers={"Authorization": f"Bearer {served.tokens['alpha reader']}"}) as asking:
        assert asking.get("/runs").status_code == 200
        assert good_push(asking, f"b-{port}") == 202
        with asking.stream("GET", f"/api/v1/runs/{run_id('alpha', 'open')}/events") as stream:
            assert next(line for line in stream.iter_lines() if line.startswith("event:")) == "event: record"


def test_a_body_beyond_the_limit_is_refused(before):
    with client(before[1], headers={"Content-Type": "application/json"}) as asking:
        assert asking.post("/hooks/ours", content=b"x" * (26 * MIB)).status_code == 413


def test_each_client_has_limits_of_its_own_and_chooses_no_address(before):
    port = before[1]
    said = [{"X-Forwarded-For": f"198.51.100.{number}"} for number in range(2 * GUESSES)]
    with client(port, "127.0.0.7", headers={"Authorization": "Bearer gl_nobody"}) as guessing:
        assert {guessing.get("/api/v1/runs", headers=each).status_code for each in said} == {401, 429}
    with client(port, "127.0.0.8", headers={"Authorization": "Bearer gl_nobody"}) as other:
        assert other.get("/api/v1/runs").status_code == 401


@pytest.mark.parametrize("words", [b"", HELLO], ids=["silent", "handshakes"])
def test_who_drips_before_the_proxy_shuts_no_one_out(before, words):
    port = before[1]
    with Holding(SimpleNamespace(port=port), count=1110, address=THREE, words=words, drips=bool(words)):
        for _ in range(20):
            with client(port) as asking:
                assert asking.get("/healthz").status_code == 200
            time.sleep(0.1)
