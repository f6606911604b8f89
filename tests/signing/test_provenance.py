"""Provenance of images: what the libraries of the format read in it, and that nothing of it can change unseen."""

import base64
import json
from dataclasses import fields, replace

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf import json_format
from in_toto_attestation.v1.statement import Statement
from in_toto_attestation.v1.statement_pb2 import Statement as StatementBytes

from gangline.errors import IntegrityError
from gangline.signing.keys import signing_key
from gangline.signing.provenance import ImageProvenance, read_image_provenance, sign_image_provenance
from gangline.spec.config.site import Site

CLAIM = ImageProvenance(
    image=f"registry.example/env@sha256:{'c' * 64}", key="e" * 64, builder="layer",
    base=f"registry.example/base@sha256:{'b' * 64}", lock="f" * 64, commit="a" * 40, sbom="blobs/sha256/" + "d" * 64,
    created="2026-01-01T00:00:00+00:00", versions={"gangline": "0"},
)  # fmt: skip


@pytest.fixture
def key(tmp_path):
    return signing_key(Site(), {"HOME": str(tmp_path)})


def payload(envelope):
    return base64.b64decode(json.loads(envelope)["payload"])


def test_the_statement_is_one_to_the_library_of_the_format(key):
    plain = json.loads(payload(sign_image_provenance(CLAIM, key)))
    read = json_format.ParseDict(plain, StatementBytes())
    Statement.copy_from_pb(read).validate()
    assert read.subject[0].digest["sha256"] == "c" * 64
    names = [each["name"] for each in plain["predicate"]["buildDefinition"]["resolvedDependencies"]]
    assert names == ["commit", "base", "lock"]


def test_the_signature_is_over_what_dsse_says(key):
    envelope = json.loads(sign_image_provenance(CLAIM, key))
    body = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"]
    signed = b" ".join([b"DSSEv1", str(len(kind)).encode(), kind.encode(), str(len(body)).encode(), body])
    public = serialization.load_pem_public_key(key.public.pem)
    public.verify(base64.b64decode(envelope["signatures"][0]["sig"]), signed, ec.ECDSA(hashes.SHA256()))


def test_a_trusted_signature_gives_the_claim_back(key):
    assert read_image_provenance(sign_image_provenance(CLAIM, key), {key.key_id: key.public}) == (CLAIM, key.key_id)


@pytest.mark.parametrize("name", [field.name for field in fields(ImageProvenance) if field.name != "versions"])
def test_no_word_of_a_claim_can_change(key, name):
    envelope = json.loads(sign_image_provenance(CLAIM, key))
    other = sign_image_provenance(replace(CLAIM, **{name: getattr(CLAIM, name) + "~"}), key)
    envelope["payload"] = json.loads(other)["payload"]
    with pytest.raises(IntegrityError, match="signature"):
        read_image_provenance(json.dumps(envelope).encode(), {key.key_id: key.public})


def test_a_signed_statement_that_contradicts_itself_is_refused(key, monkeypatch):
    from gangline.signing import provenance

    real = provenance._image_statement
    subject = [{"name": "registry.example/env", "digest": {"sha256": "0" * 64}}]
    monkeypatch.setattr(provenance, "_image_statement", lambda claim: real(claim) | {"subject": subject})
    envelope = sign_image_provenance(CLAIM, key)
    monkeypatch.undo()
    with pytest.raises(IntegrityError, match="contradicts itself"):
        read_image_provenance(envelope, {key.key_id: key.public})


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"[" * 100_000, b'{"payload":"%","signatures":[],"payloadType":""}', b"x" * (2 << 20)]
)
def test_what_is_not_an_envelope_is_refused(data, key):
    with pytest.raises(IntegrityError):
        read_image_provenance(data, {key.key_id: key.public})


def test_another_type_and_a_signer_that_is_not_trusted_are_refused(key):
    envelope = json.loads(sign_image_provenance(CLAIM, key))
    with pytest.raises(IntegrityError, match="wanted an envelope of"):
        read_image_provenance(json.dumps(envelope | {"payloadType": "text/plain"}).encode(), {key.key_id: key.public})
    with pytest.raises(IntegrityError, match="wanted one of no trusted key"):
        read_image_provenance(json.dumps(envelope).encode(), {})
