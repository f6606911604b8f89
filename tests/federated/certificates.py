"""Certificates as `nvflare provision` makes them: one root, RSA keys, a common name for each member."""

from datetime import UTC, datetime, timedelta
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from gangline.federated.secure_sum import Identity


@cache
def key_of(name):
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def certificate_of(name, issuer="root", *, days=30):
    """Certificate of `name` issued by the key of `issuer`."""
    subject, by = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, issuer))
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(by).public_key(key_of(name).public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=60))
    return builder.not_valid_after(now + timedelta(days=days)).sign(key_of(issuer), hashes.SHA256())


def identity_of(name, *, root="root"):
    return Identity(certificate_of(name, root), key_of(name), certificate_of(root, root))
