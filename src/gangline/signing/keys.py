"""Keys of a site: the one that signs, those that are trusted, and the checkpoint keys derived from it."""

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gangline.errors import ConfigError, IntegrityError
from gangline.spec.config.secrets import resolve_secret
from gangline.spec.config.site import Site

LOCAL_NAME = "local.pem"
CURVES = ("secp256r1", "secp384r1", "secp521r1")
_ECDSA = ec.ECDSA(hashes.SHA256())


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyInfo:
    """A key as `gangline keys` lists it."""

    key_id: str
    place: str
    """File or reference; never the key."""
    own: bool
    """It signs here."""
    trusted: bool
    """What it signed may be promoted."""


class PublicKey:
    """The half that verifies."""

    def __init__(self, key: ec.EllipticCurvePublicKey) -> None:
        self.pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        self.key_id = sha256(self.pem).hexdigest()[:8]
        self._key = key

    @staticmethod
    def from_pem(pem: bytes, place: str) -> "PublicKey":
        """The key in `pem`; `place` names it in the ConfigError about anything else."""
        try:
            key = serialization.load_pem_public_key(pem)
        except ValueError as error:
            raise ConfigError(f"{place}: wanted a public key in PEM form, found none: {error}") from error
        if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name not in CURVES:
            raise ConfigError(f"{place}: wanted an elliptic key on one of {', '.join(CURVES)}, found another kind")
        return PublicKey(key)

    def verify(self, signature: str, data: bytes) -> None:
        """Raises IntegrityError unless `signature` is this key's over `data`."""
        try:
            self._key.verify(base64.b64decode(signature, validate=True), data, _ECDSA)
        except (InvalidSignature, ValueError) as error:
            raise IntegrityError(f"the signature is not that of key {self.key_id}") from error


class SigningKey:
    """The half that signs. Its repr shows the id alone."""

    def __init__(self, pem: bytes, place: str) -> None:
        """Read an unencrypted PEM; `place` is named in messages."""
        try:
            key = serialization.load_pem_private_key(pem, None)
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"{place}: wanted an unencrypted private key in PEM form, found something else"
            ) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name not in CURVES:
            raise ConfigError(f"{place}: wanted an elliptic key on one of {', '.join(CURVES)}, found another kind")
        self.place = place
        self.public = PublicKey(key.public_key())
        self.key_id = self.public.key_id
        self._key = key

    def __repr__(self) -> str:
        return f"SigningKey({self.key_id}, {self.place})"

    def sign(self, data: bytes) -> str:
        """Signature over `data`, base64."""
        return base64.b64encode(self._key.sign(data, _ECDSA)).decode()

    def private_pem(self) -> bytes:
        """For the signer library, which reads keys from files: write it with mode 0600 and delete it."""
        return private_pem(self._key)

    def checkpoint_key(self, project: str) -> bytes:
        """HMAC key for the checkpoint manifests of `project`: 32 bytes that tell nothing about this key.

        Ranks get it and may forge checkpoints of their own project, never a signature of a model.
        """
        secret = self._key.private_numbers().private_value.to_bytes(66, "big")
        return HKDF(hashes.SHA256(), 32, b"gangline", f"checkpoint-key/1/{project}".encode()).derive(secret)


def key_folder(environ: Mapping[str, str]) -> Path:
    """`$XDG_CONFIG_HOME/gangline/keys`, else `~/.config/gangline/keys`."""
    base = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME") or "~").expanduser() / ".config")
    return Path(base) / "gangline" / "keys"


def signing_key(site: Site, environ: Mapping[str, str]) -> SigningKey:
    """The key of `sign.key`, else the user's own, made now if there is none.

    Raises:
        ConfigError: The reference cannot be resolved, the key is not an elliptic PEM, or others may read it.
    """
    if site.sign.key is not None:
        return SigningKey(resolve_secret(site.sign.key, environ).encode(), site.sign.key)
    path = key_folder(environ) / LOCAL_NAME
    try:
        if not path.exists():
            _make(path)
        return SigningKey(_read_closed(path), str(path))
    except OSError as error:
        raise ConfigError(
            f"wanted a signing key at {path}, found: {error.strerror}; set XDG_CONFIG_HOME to a folder that may be"
            " written, or sign.key to a reference"
        ) from error


def trusted_keys(site: Site, environ: Mapping[str, str]) -> dict[str, PublicKey]:
    """Public keys by id whose signature may be promoted.

    A private key is neither read nor made where `sign.identities` names keys whose public halves are all here: a pod
    that verifies has none.

    Raises:
        ConfigError: `sign.identities` names an id whose public half is not here.
    """
    folder, named = key_folder(environ), site.sign.identities
    if named and all((folder / f"{key_id}.pub").is_file() for key_id in named):
        return {key_id: _public(key_id, environ) for key_id in named}
    own = signing_key(site, environ).public
    if not site.sign.identities:
        return {own.key_id: own}
    return {key_id: own if key_id == own.key_id else _public(key_id, environ) for key_id in site.sign.identities}


def sealing_keys(site: Site, environ: Mapping[str, str]) -> dict[str, PublicKey]:
    """Public keys by id whose seal may count: the own one, those of `sign.identities` and `sign.forks` that are here.

    A task's pod has the site's key and no folder of public ones: what it does not have it does not trust.
    """
    own = signing_key(site, environ).public
    folder = key_folder(environ)
    here = [key_id for key_id in (*site.sign.identities, *site.sign.forks) if (folder / f"{key_id}.pub").is_file()]
    return {key_id: _public(key_id, environ) for key_id in here} | {own.key_id: own}


def list_keys(site: Site, environ: Mapping[str, str]) -> tuple[KeyInfo, ...]:
    """The signing key first, where there is one yet, then public keys that lie in the folder or are trusted by name."""
    folder = key_folder(environ)
    made = site.sign.key is not None or (folder / LOCAL_NAME).exists()
    own = signing_key(site, environ) if made else None
    trusted = set(site.sign.identities) or ({own.key_id} if own else set())
    rows = [KeyInfo(key_id=own.key_id, place=own.place, own=True, trusted=own.key_id in trusted)] if own else []
    others = {path.stem for path in folder.glob("*.pub")} | set(site.sign.identities)
    for key_id in sorted(others - {row.key_id for row in rows}):
        path = folder / f"{key_id}.pub"
        place = str(path) if path.exists() else "not here"
        rows.append(KeyInfo(key_id=key_id, place=place, own=False, trusted=key_id in trusted))
    return tuple(rows)


def _public(key_id: str, environ: Mapping[str, str]) -> PublicKey:
    path = key_folder(environ) / f"{key_id}.pub"
    try:
        key = PublicKey.from_pem(path.read_bytes(), str(path))
    except OSError as error:
        raise ConfigError(
            f"sign.identities names {key_id}, but {path} cannot be read: put its public PEM there"
        ) from error
    if key.key_id != key_id:
        raise ConfigError(f"{path} holds the key {key.key_id}, wanted {key_id}; name the file after its key")
    return key


def _read_closed(path: Path) -> bytes:
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        raise ConfigError(f"{path}: wanted a key that its owner alone may read, found mode {mode:o}; chmod 600 {path}")
    return path.read_bytes()


def _make(path: Path) -> None:
    """Write a new key whole or not at all; of two that race, one key stays."""
    key = ec.generate_private_key(ec.SECP256R1())
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(private_pem(key))
            file.flush()
            os.fsync(file.fileno())
        _link(fresh, path)
    finally:
        fresh.unlink()


def _link(fresh: Path, path: Path) -> None:
    try:
        os.link(fresh, path)
    except FileExistsError:
        return  # another process was first: its key is the key
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    public = SigningKey(path.read_bytes(), str(path)).public
    path.with_name(f"{public.key_id}.pub").write_bytes(public.pem)


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """`key` as unencrypted PKCS 8."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
