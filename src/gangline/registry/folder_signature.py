"""Signature of a model folder, by the model-signing library: a changed, added or missing file is refused.

The signature covers the files, not the name of the model: name and version are in `provenance.json`, inside the signed
folder.
"""

import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from gangline.errors import IntegrityError, NotInstalledError
from gangline.registry.model_files import SIGNATURE
from gangline.signing.keys import PublicKey, SigningKey

_INSTALL = "pip install 'gangline[publish]'"


def sign_folder(folder: Path, key: SigningKey) -> Path:
    """Write `model.sig` over all other files of `folder`."""
    signing = _library("signing")
    with tempfile.TemporaryDirectory() as private:  # mode 0700: the library reads keys from files only
        pem = Path(private) / "key.pem"
        pem.touch(mode=0o600)
        pem.write_bytes(key.private_pem())
        config = signing.Config().use_elliptic_key_signer(private_key=pem)
        target = folder / SIGNATURE
        config.set_hashing_config(_all_files(folder)).sign(folder, target)
    return target


def verify_folder(folder: Path, keys: Iterable[PublicKey]) -> str:
    """Id of the key that signed `folder`.

    Raises:
        IntegrityError: There is no signature by one of `keys`, or the files are not those that were signed.
    """
    signature = folder / SIGNATURE
    if not signature.is_file():
        raise IntegrityError(f"{folder.name} has no {SIGNATURE}, so it was never signed")
    reason = "no key is trusted; name one in sign.identities"
    for key in keys:
        try:
            _verify(folder, signature, key)
        except IntegrityError as error:
            reason = str(error)
        else:
            return key.key_id
    raise IntegrityError(f"the signature was refused: {reason}")


def _verify(folder: Path, signature: Path, key: PublicKey) -> None:
    verifying = _library("verifying")
    with tempfile.TemporaryDirectory() as private:
        pem = Path(private) / "key.pub"
        pem.write_bytes(key.pem)
        try:
            config = verifying.Config().use_elliptic_key_verifier(public_key=pem)
            config.set_hashing_config(_all_files(folder)).verify(folder, signature)
        except Exception as error:  # the library raises what its parsers raise; all of it means "not verified"
            reason = str(error).strip() or type(error).__name__
            raise IntegrityError(f"key {key.key_id}: {reason[:300]}") from error


def _all_files(folder: Path) -> Any:
    """Hashing of every file except the signature; the library's default ignores files of git."""
    config = _library("hashing").Config()
    return config.set_ignored_paths(paths=[folder / SIGNATURE], ignore_git_paths=False)


def require_libraries() -> None:
    """Raise NotInstalledError where a library of `gangline[publish]` is not installed; none is imported."""
    for name in ("model_signing", "cyclonedx", "in_toto_attestation"):
        if find_spec(name) is None:
            raise NotInstalledError(f"publishing needs {name}, which is not installed; {_INSTALL}")


def _library(name: str) -> ModuleType:
    import importlib

    try:
        return importlib.import_module(f"model_signing.{name}")
    except ImportError as error:
        raise NotInstalledError(f"signing needs model-signing, {error}; {_INSTALL}") from error
