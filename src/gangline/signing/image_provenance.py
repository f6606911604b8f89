"""Provenance of an image: an in-toto statement with a SLSA v1 predicate, signed as a DSSE envelope.

It binds the image's digest to the key of its recipe, the commit it was first built for, lock, base, builder and bill
of materials.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gangline.errors import IntegrityError
from gangline.signing.keys import PublicKey, SigningKey
from gangline.signing.model_provenance import PREDICATE, STATEMENT
from gangline.spec.codec import canonical, from_plain

PAYLOAD_TYPE = "application/vnd.in-toto+json"
MEDIA_TYPE = "application/vnd.dsse.envelope.v1+json"
BUILD_TYPE = "urn:gangline:image:1"
MAX_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageProvenance:
    """What the signer says of an image."""

    image: str
    """`name@sha256:...`."""
    key: str
    """Of the recipe; of a base image as it is, the digest of that fact."""
    builder: str
    base: str
    lock: str
    """SHA-256 of the lock; "" where nothing was installed."""
    commit: str
    """For which the image was built first."""
    sbom: str
    """Blob key; "" for a base image as it is."""
    created: str
    versions: dict[str, str]


def sign_image_provenance(claim: ImageProvenance, key: SigningKey) -> bytes:
    """The envelope, as JSON."""
    payload = canonical(_statement(claim))
    signature = key.sign(_envelope_bytes(payload))
    return canonical({
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": key.key_id, "sig": signature}],
    })  # fmt: skip


def read_image_provenance(envelope: bytes, keys: Mapping[str, PublicKey]) -> tuple[ImageProvenance, str]:
    """What a trusted key signed, and the id of that key.

    Raises:
        IntegrityError: No trusted signature, or what is signed is no such statement.
    """
    if len(envelope) > MAX_BYTES:
        raise IntegrityError(f"provenance of an image has {len(envelope)} bytes, more than {MAX_BYTES}: not ours")
    try:
        plain = json.loads(envelope)
        payload = base64.b64decode(plain["payload"], validate=True)
        signatures = [(str(each["keyid"]), str(each["sig"])) for each in plain["signatures"]]
        kind = plain["payloadType"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise IntegrityError(f"wanted a signed envelope, found something else: {error}") from error
    if kind != PAYLOAD_TYPE:
        raise IntegrityError(f"wanted an envelope of {PAYLOAD_TYPE}, found {kind!r:.80}")
    signer = _verified(payload, signatures, keys)
    return _parse_statement(payload), signer


def _verified(payload: bytes, signatures: list[tuple[str, str]], keys: Mapping[str, PublicKey]) -> str:
    for key_id, signature in signatures:
        if key_id in keys:
            keys[key_id].verify(signature, _envelope_bytes(payload))
            return key_id
    found = ", ".join(key_id[:16] for key_id, _ in signatures[:5]) or "nobody"
    raise IntegrityError(f"provenance is signed by {found}, wanted one of {', '.join(keys) or 'no trusted key'}")


def _envelope_bytes(payload: bytes) -> bytes:
    """What is signed: DSSE's pre-authentication encoding."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def _statement(claim: ImageProvenance) -> dict[str, Any]:
    name, _, digest = claim.image.partition("@sha256:")
    dependencies = [{"name": "commit", "digest": {"gitCommit": claim.commit}}, {"name": "base", "uri": claim.base}]
    if claim.lock:
        dependencies.append({"name": "lock", "digest": {"sha256": claim.lock}})
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}}],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": asdict(claim),
                "resolvedDependencies": dependencies,
            },
            "runDetails": {
                "builder": {"id": f"urn:gangline:builder:{claim.builder}", "version": dict(claim.versions)},
                "metadata": {"startedOn": claim.created},
            },
        },
    }


def _parse_statement(payload: bytes) -> ImageProvenance:
    try:
        plain = json.loads(payload)
        said = plain["predicate"]["buildDefinition"]["externalParameters"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise IntegrityError(f"wanted an in-toto statement on an image, found something else: {error}") from error
    claim = from_plain(ImageProvenance, said)
    if plain != _statement(claim):
        raise IntegrityError("the statement on an image contradicts itself")
    return claim
