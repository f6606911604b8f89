"""Certificates and kubeconfigs of the test cluster, made once and kept with mode 0600. One authority signs all clients
and servers, another the aggregator's, as an API server wants it."""

import ipaddress
import json
import shutil
from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tests.cluster.rig import places

_DAYS = 3650
_SERVICE_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
_USERS = {
    "admin": ("admin", "system:masters"),
    "controllers": ("system:kube-controller-manager", None),
    "scheduler": ("system:kube-scheduler", None),
    "proxy": ("system:kube-proxy", None),
    "dns": ("gangline-dns", "system:masters"),
    "kubelet": (f"system:node:{places.NODE}", "system:nodes"),
}
"""Kubeconfig to the user and group its certificate names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Authority:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def make_keys(folder: Path) -> None:
    """Everything in `folder`, unless a complete set is there; a half-made one is made anew."""
    complete = folder / "complete"
    if complete.is_file() and complete.read_text() == _wanted():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    cluster, front = _authority(folder, "ca"), _authority(folder, "front-proxy-ca")
    addresses = ("127.0.0.1", places.API_SERVICE_ADDRESS, places.NODE_ADDRESS)
    _issue(folder, "apiserver", cluster, "kube-apiserver", names=(*_SERVICE_NAMES, "localhost", *addresses))
    _issue(folder, "kubelet-serving", cluster, places.NODE, names=(places.NODE, places.NODE_ADDRESS, "127.0.0.1"))
    _issue(folder, "apiserver-kubelet", cluster, "kube-apiserver-kubelet-client", group="system:masters")
    _issue(folder, "front-proxy", front, "front-proxy-client")
    for user, (name, group) in _USERS.items():
        _issue(folder, user, cluster, name, group=group)
        _write_kubeconfig(folder, user)
    _make_service_account_key(folder)
    complete.write_text(_wanted())


def _wanted() -> str:
    return json.dumps([_USERS, _SERVICE_NAMES, places.api_port(), places.NODE_ADDRESS])


def _authority(folder: Path, name: str) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name, None)
    usage = _usage(sign=True)
    certificate = (
        _builder(subject, subject, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    _write(folder, name, key, certificate)
    return Authority(key=key, certificate=certificate)


def _issue(
    folder: Path, file: str, authority: Authority, name: str, *, group: str | None = None, names: tuple[str, ...] = ()
) -> None:
    """A client's certificate, or with `names` a server's."""
    key = ec.generate_private_key(ec.SECP256R1())
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if names else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        _builder(_subject(name, group), authority.certificate.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_name(each) for each in names]), critical=False)
    _write(folder, file, key, builder.sign(authority.key, hashes.SHA256()))


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=_DAYS))
    )


def _subject(name: str, group: str | None) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign, key_cert_sign=sign, crl_sign=sign, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _write(folder: Path, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    _write_private(folder / f"{name}.key", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(Encoding.PEM))


def _make_service_account_key(folder: Path) -> None:
    """Of the tokens that pods get."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write_private(
        folder / "service-accounts.key", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / "service-accounts.pub").write_bytes(public)


def _write_kubeconfig(folder: Path, user: str) -> None:
    """JSON, which every reader of YAML takes. Inside and on the host the server has the same address and port."""
    server = {
        "server": f"https://127.0.0.1:{places.api_port()}",
        "certificate-authority-data": _text(folder / "ca.crt"),
    }
    client = {
        "client-certificate-data": _text(folder / f"{user}.crt"),
        "client-key-data": _text(folder / f"{user}.key"),
    }
    reported = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "gangline-test", "cluster": server}],
        "users": [{"name": user, "user": client}],
        "contexts": [{"name": "gangline-test", "context": {"cluster": "gangline-test", "user": user}}],
        "current-context": "gangline-test",
    }
    _write_private(folder / f"{user}.kubeconfig", json.dumps(reported, indent=1).encode())


def _text(path: Path) -> str:
    return b64encode(path.read_bytes()).decode()


def _write_private(path: Path, data: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(data)
