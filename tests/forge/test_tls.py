"""A forge is who its certificate says, for the name that the site wrote, whatever address was dialled."""

import ssl
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.contracts.forge.conftest import forge_of

from gangline.errors import StorageError
from gangline.http.client import HttpClient
from gangline.http.retry import Deadline, OutcomeUnknown


def write_certificate(path, *names):
    """A self-signed one with its key in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "forge")])
    now = datetime.now(UTC)
    alternatives = [x509.DNSName(n) if n[0].isalpha() else x509.IPAddress(ip_address(n)) for n in names]
    made = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return path


class Forge(BaseHTTPRequestHandler):
    seconds_a_byte = 0.0
    tokens: list[str] = []  # noqa: RUF012  # what was shown to this server

    def do_GET(self):
        self.tokens.append(self.headers["Authorization"])
        data = b'{"object": {"sha": "' + b"1" * 40 + b'"}}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        for each in [data] if self.seconds_a_byte == 0 else [bytes([octet]) for octet in data]:
            self.wfile.write(each)
            time.sleep(self.seconds_a_byte)

    def log_message(self, *_):
        """Quiet."""


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Starts a server with a certificate for some names; the certificate is trusted where asked."""
    servers = []

    def start(*names, trusted):
        kept = write_certificate(tmp_path / "forge.pem", *names)
        if trusted:
            monkeypatch.setenv("SSL_CERT_FILE", str(kept))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(kept)
        server = ThreadingHTTPServer(("127.0.0.1", 0), Forge)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        server.handle_error = lambda *_: None
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
        Forge.tokens.clear()
        return f"https://localhost:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def ask(url):
    return forge_of("github", url, resolve=lambda *_: ["127.0.0.1"]).head("team/tiny", "refs/heads/main")


def test_a_trusted_certificate_for_this_name_is_good(served):
    assert ask(served("localhost", trusted=True)).commit == "1" * 40
    assert len(Forge.tokens) == 1


@pytest.mark.parametrize(
    ("names", "trusted"),
    [(("localhost",), False), (("git.example.org",), True), (("127.0.0.1",), True)],
    ids=["nobody vouches for it", "of another name", "of the address, not of the name"],
)
def test_a_wrong_certificate_sees_no_token(served, names, trusted):
    url = served(*names, trusted=trusted)
    with pytest.raises(StorageError, match=r"does not answer: .*certificate verify failed"):
        ask(url)
    assert Forge.tokens == []


def test_an_answer_over_tls_that_drips_ends_by_the_deadline(served, monkeypatch):
    monkeypatch.setattr(Forge, "seconds_a_byte", 0.1)
    began = time.monotonic()
    with pytest.raises(OutcomeUnknown):
        HttpClient().request("GET", served("localhost", trusted=True), deadline=Deadline(0.7))
    assert time.monotonic() - began < 2
