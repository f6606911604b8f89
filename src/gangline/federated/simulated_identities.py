"""Certificates of simulated members: a root that lives for one gang and signs nothing else. PEM texts by name."""

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from gangline.federated.secure_sum import Identity

_LIFE = timedelta(days=365)
_ROOT = "simulated root"


def make_identities(names: list[str]) -> dict[str, list[str]]:
    """Certificate, key and root of each of `names`; a key takes about a tenth of a second."""
    root = _new_key()
    issued = _certificate(_ROOT, root, root)
    return {name: _texts(name, _new_key(), root, issued) for name in names}


def identity_of(texts: list[str]) -> Identity:
    """Identity of what `make_identities` made for one name."""
    certificate, key, root = (each.encode() for each in texts)
    return Identity.of_pem(certificate, key, root)


def _texts(name: str, key: rsa.RSAPrivateKey, root: rsa.RSAPrivateKey, issued: str) -> list[str]:
    plain = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return [_certificate(name, key, root), plain.decode(), issued]


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _certificate(name: str, key: rsa.RSAPrivateKey, issuer: rsa.RSAPrivateKey) -> str:
    subject, by = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, _ROOT))
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(by).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=1))
    made = builder.not_valid_after(now + _LIFE).sign(issuer, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode()
