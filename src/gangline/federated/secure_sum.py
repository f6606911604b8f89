"""A sum that shows no single answer: pairs of members add masks that cancel. Bytes in, bytes out.

Each member makes a fresh X25519 key for an attempt and signs it with the key of its certificate. It gets the signed
keys of all members that are ready, checks them, and adds to its vector one mask for each peer, AES-256-CTR under a key
from HKDF-SHA256 of the shared secret: the member whose name comes first adds it, the other one subtracts it. Numbers
are added modulo their range, so the sum of all vectors is exact, and one vector alone is noise. Nothing is recovered:
where a vector is missing the attempt is lost, and its vectors stay noise.

Source: Bonawitz and others, "Practical Secure Aggregation for Privacy-Preserving Machine Learning" (2017), section 4,
one-time pads; the shares of secrets that it adds for members that drop out are left out.

Simulated members get certificates of a root that lives for one gang and signs nothing else.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gangline.errors import IntegrityError, NotInstalledError

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import padding, rsa
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    from cryptography.x509.oid import NameOID
except ImportError as missing:
    raise NotInstalledError(
        f"federated.secure_sum needs cryptography where members are simulated, {missing}; add it to the lock of [env]"
    ) from missing

MOST_KEY_BYTES = 64 * 2**10
"""A signed key with its certificates."""
_PADDING = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=padding.PSS.DIGEST_LENGTH)


@dataclass(frozen=True, kw_only=True, slots=True)
class Occasion:
    """What one sum is about: members sign it, so that a key serves no other sum."""

    run: str
    round: int
    attempt: int
    code: str
    """Digest of the code layer."""
    roster: tuple[str, ...]
    """Names that the member's administrator saw when approving the code."""

    @property
    def place(self) -> tuple[int, int]:
        """Round and attempt, which only grow."""
        return self.round, self.attempt

    @property
    def text(self) -> str:
        """One line, with the roster by its digest."""
        roster = sha256("\0".join(sorted(self.roster)).encode()).hexdigest()
        return json.dumps([self.run, self.round, self.attempt, self.code, roster])


@dataclass(frozen=True, slots=True)
class Identity:
    """Certificate of a member with its private key, and the root that issued those of all members."""

    certificate: x509.Certificate
    key: rsa.RSAPrivateKey
    root: x509.Certificate

    @staticmethod
    def of_pem(certificate: bytes, key: bytes, root: bytes) -> "Identity":
        """Identity as the files of a kit have it, `client.crt`, `client.key` and `rootCA.pem` of NVFlare.

        Raises:
            IntegrityError: A file has another form, or the key is not an RSA key.
        """
        try:
            own, issuer = x509.load_pem_x509_certificate(certificate), x509.load_pem_x509_certificate(root)
            private = serialization.load_pem_private_key(key, None)
        except (ValueError, TypeError) as error:
            raise IntegrityError(f"wanted certificates and a key in PEM form, found: {error}") from error
        if not isinstance(private, rsa.RSAPrivateKey):
            raise IntegrityError(f"wanted an RSA key, as nvflare provision makes them, found {type(private).__name__}")
        return Identity(own, private, issuer)

    @property
    def name(self) -> str:
        """Common name of the certificate."""
        return _common_name(self.certificate)


class SecureSum:
    """What one member does for the sums of one run; it begins one attempt at a time and answers it once."""

    def __init__(self, identity: Identity, *, least: int, begun: tuple[int, int] = (0, 0)) -> None:
        """Args:
        identity: Of this member.
        least: Smallest group whose sum this member joins.
        begun: Round and attempt that this member began last, in an earlier process: it is kept by who makes this.
        """
        self._identity, self._least, self.begun = identity, least, begun
        self._occasion: Occasion | None = None
        self._secret: X25519PrivateKey | None = None

    def begin(self, occasion: Occasion) -> bytes:
        """Signed public key of a fresh pair; the key of an earlier attempt is gone.

        Raises:
            IntegrityError: The attempt is not behind the last one: its answer may be out.
        """
        if occasion.place <= self.begun:
            raise IntegrityError(
                f"round and attempt {occasion.place}: wanted them behind {self.begun}; each attempt is begun once"
            )
        self.begun, self._occasion, self._secret = occasion.place, occasion, X25519PrivateKey.generate()
        public = _raw(self._secret.public_key())
        signed = _signed_text(occasion, self._identity.name, public)
        signature = self._identity.key.sign(signed, _PADDING, hashes.SHA256())
        certificate = self._identity.certificate.public_bytes(serialization.Encoding.PEM).decode()
        fields = {"key": _text(public), "signature": _text(signature), "certificate": certificate}
        return json.dumps(fields).encode()

    def mask(self, keys: Sequence[bytes], vector: bytes, *, num_numbers: int) -> bytes:
        """`vector` under the masks of all peers; the keys are erased.

        Args:
            keys: Signed keys of all members of the sum, as the coordinator sent them.
            vector: Numbers of 32 bits, then numbers of 64 bits.
            num_numbers: Of 32 bits.

        Raises:
            IntegrityError: The list breaks a rule, or this attempt was answered.
        """
        occasion, secret = self._occasion, self._secret
        if occasion is None or secret is None:
            raise IntegrityError(f"round and attempt {self.begun}: wanted one answer, found a second request")
        peers = check_keys(keys, occasion, self._identity.root, least=self._least)
        own_key, name = _raw(secret.public_key()), self._identity.name
        if peers.get(name) != own_key:
            raise IntegrityError(f"the list of {sorted(peers)} has not the key that {name} made for this attempt")
        self._occasion = self._secret = None
        numbers, scalars = _split(vector, num_numbers)
        for peer, public in sorted(peers.items()):
            if peer == name:
                continue
            mask = _mask(secret, public, occasion, {name, peer}, len(vector))
            first, second = _split(mask, num_numbers)
            if name < peer:
                numbers, scalars = numbers + first, scalars + second
            else:
                numbers, scalars = numbers - first, scalars - second
        return numbers.tobytes() + scalars.tobytes()


def add(vectors: Sequence[bytes], *, num_numbers: int) -> bytes:
    """Sum of the vectors of all members of a list, each number modulo its range.

    Raises:
        IntegrityError: They differ in length, or there is none.
    """
    if len({len(each) for each in vectors}) != 1:
        raise IntegrityError(f"wanted vectors of one length, found {sorted({len(each) for each in vectors})}")
    numbers, scalars = _split(vectors[0], num_numbers)
    for vector in vectors[1:]:
        more, more_scalars = _split(vector, num_numbers)
        numbers, scalars = numbers + more, scalars + more_scalars
    return numbers.tobytes() + scalars.tobytes()


def check_keys(
    keys: Sequence[bytes], occasion: Occasion, root: x509.Certificate, *, least: int, at: datetime | None = None
) -> dict[str, bytes]:
    """Public keys by name of member, if the list obeys every rule; `at` is the time for certificates, now by default.

    More than half of the roster is in it, so that no two sums of one attempt have disjoint members.

    Raises:
        IntegrityError: With the rule that it breaks.
    """
    found: dict[str, bytes] = {}
    for key in keys:
        name, public = _read_key(key, occasion, root, at or datetime.now(UTC))
        if name not in occasion.roster:
            raise IntegrityError(f"{name} is not on the roster of {len(occasion.roster)} that was approved")
        if name in found:
            raise IntegrityError(f"{name} is twice in the list of keys")
        found[name] = public
    if len(found) < least or 2 * len(found) <= len(occasion.roster):
        raise IntegrityError(
            f"wanted at least {least} members and more than half of the {len(occasion.roster)} of the roster, "
            f"found {len(found)}"
        )
    return found


def _read_key(data: bytes, occasion: Occasion, root: x509.Certificate, at: datetime) -> tuple[str, bytes]:
    """Name and public key of one signed key."""
    try:
        fields: dict[str, Any] = json.loads(data) if len(data) <= MOST_KEY_BYTES else {}
        public = base64.b64decode(fields["key"], validate=True)
        signature = base64.b64decode(fields["signature"], validate=True)
        certificate = x509.load_pem_x509_certificate(str(fields["certificate"]).encode())
    except (ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"wanted a signed key of a member, found another text: {error!r:.100}") from error
    name = _common_name(certificate)
    _check_certificate(certificate, root, at, name)
    signer = certificate.public_key()
    if not isinstance(signer, rsa.RSAPublicKey) or len(public) != 32:
        raise IntegrityError(f"the key of {name}: wanted 32 bytes signed by an RSA key, found another kind")
    try:
        signer.verify(signature, _signed_text(occasion, name, public), _PADDING, hashes.SHA256())
    except InvalidSignature as error:
        raise IntegrityError(
            f"the key of {name} is not signed by its certificate for this run, code, roster, round {occasion.round}, "
            f"attempt {occasion.attempt}"
        ) from error
    return name, public


def _check_certificate(certificate: x509.Certificate, root: x509.Certificate, at: datetime, name: str) -> None:
    """The root itself issued it: a certificate of a member issues none, whatever it says."""
    if not certificate.not_valid_before_utc <= at <= certificate.not_valid_after_utc:
        raise IntegrityError(f"the certificate of {name} is not valid at {at:%Y-%m-%d %H:%M} UTC")
    try:
        certificate.verify_directly_issued_by(root)
    except (InvalidSignature, ValueError, TypeError) as error:
        raise IntegrityError(f"the certificate of {name} was not issued by the root of this federation") from error


def _common_name(certificate: x509.Certificate) -> str:
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(names) != 1 or not isinstance(names[0].value, str):
        raise IntegrityError(f"wanted a certificate with one common name, found {len(names)}")
    return names[0].value


def _signed_text(occasion: Occasion, name: str, public: bytes) -> bytes:
    return "\n".join(["gangline secure sum", occasion.text, name, _text(public)]).encode()


def _mask(secret: X25519PrivateKey, public: bytes, occasion: Occasion, names: set[str], length: int) -> bytes:
    """Key stream of one pair of members."""
    try:
        shared = secret.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        raise IntegrityError(f"{' and '.join(sorted(names))}: a key gives no shared secret: {error}") from error
    info = "\n".join([occasion.text, *sorted(names)]).encode()
    key = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(shared)
    return Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(length))


def _split(data: bytes, num_numbers: int) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
    """Numbers of 32 bits, and the numbers of 64 bits behind them."""
    return np.frombuffer(data, "<u4", count=num_numbers), np.frombuffer(data, "<u8", offset=4 * num_numbers)


def _raw(key: X25519PublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


_SIMULATED_ROOT = "simulated root"


def make_identities(names: list[str]) -> dict[str, list[str]]:
    """Certificate, key and root of each of `names`, simulated ones; a key takes about a tenth of a second."""
    root, texts = _new_key(), dict[str, list[str]]()
    issued = _certificate(_SIMULATED_ROOT, root, root)
    for name in names:
        key = _new_key()
        plain = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        texts[name] = [_certificate(name, key, root), plain.decode(), issued]
    return texts


def identity_of(texts: list[str]) -> Identity:
    """Identity of what `make_identities` made for one name."""
    certificate, key, root = (text.encode() for text in texts)
    return Identity.of_pem(certificate, key, root)


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _certificate(name: str, key: rsa.RSAPrivateKey, issuer: rsa.RSAPrivateKey) -> str:
    subject, by = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, _SIMULATED_ROOT))
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(by).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=1))
    made = builder.not_valid_after(now + timedelta(days=365)).sign(issuer, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode()
