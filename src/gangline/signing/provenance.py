"""Provenance of model versions and of images: in-toto statements with a SLSA v1 predicate.

The statement on a version is a file of the signed model folder, so the folder's signature covers it. It names model and
version, which the folder's signature does not. The statement on an image is signed as a DSSE envelope; it binds the
image's digest to its recipe, base, lock, bill of materials, and the commit that it was first built for.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from gangline.errors import IntegrityError, NotInstalledError
from gangline.signing.keys import PublicKey, SigningKey
from gangline.spec.codec import canonical, from_plain
from gangline.spec.federated import FederationResult
from gangline.spec.record import Record

PREDICATE = "https://slsa.dev/provenance/v1"
STATEMENT = "https://in-toto.io/Statement/v1"
MODEL_BUILD_TYPE = "urn:gangline:line:1"
IMAGE_BUILD_TYPE = "urn:gangline:image:1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
_MAX_MODEL_BYTES = 4 << 20
_MAX_IMAGE_BYTES = 1 << 20


class ProvenanceSubject(Protocol):
    """A file that a statement is about."""

    @property
    def path(self) -> str:
        """Relative to the model folder."""
        ...

    @property
    def sha256(self) -> str:
        """SHA-256 of the content, in hex."""


def render_model_provenance(
    record: Record, *, model: str, version: int, checkpoint: str, files: Iterable[ProvenanceSubject]
) -> str:
    """The statement on a version as JSON; `files` are the files of the folder that are written before it."""
    statement_class, descriptor_class, predicate_class, formats = _library()
    predicate = formats.ParseDict(_model_predicate(record, model, version, checkpoint), predicate_class())
    subjects = [descriptor_class(name=file.path, digest={"sha256": file.sha256}).pb for file in files]
    statement = statement_class(subjects, PREDICATE, formats.MessageToDict(predicate))
    statement.validate()
    plain = formats.MessageToDict(statement.pb)
    return json.dumps(plain, sort_keys=True, indent=1, ensure_ascii=False) + "\n"


def check_model_provenance(
    data: bytes, *, model: str, version: int, run: str, commit: str, files: Iterable[ProvenanceSubject]
) -> str:
    """One sentence on the content of the statement; `files` must be exactly its subjects.

    Raises:
        IntegrityError: It is not such a statement, or it names other values or files.
    """
    plain = _parse_model_statement(data)
    build = plain.get("predicate", {}).get("buildDefinition", {})
    found = build.get("externalParameters", {})
    wanted = {"model": model, "version": str(version), "commit": commit, "run": run}
    for name, value in wanted.items():
        if found.get(name) != value:
            raise IntegrityError(f"provenance says {name} {found.get(name)!r}, wanted {value!r}")
    subjects = {each.get("name"): each.get("digest", {}).get("sha256") for each in plain.get("subject", [])}
    listed = {file.path: file.sha256 for file in files}
    if subjects != listed:
        differ = sorted(name for name in subjects.keys() | listed.keys() if subjects.get(name) != listed.get(name))
        raise IntegrityError(f"provenance names other digests of {', '.join(map(str, differ))}")
    return f"{model} {version} from commit {commit[:8]}, run {run}, {len(subjects)} files"


def _parse_model_statement(data: bytes) -> dict[str, Any]:
    if len(data) > _MAX_MODEL_BYTES:
        raise IntegrityError(f"provenance has {len(data)} bytes, wanted at most {_MAX_MODEL_BYTES}")
    try:
        plain = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"provenance is not JSON: {error}") from error
    if not isinstance(plain, dict) or plain.get("_type") != STATEMENT or plain.get("predicateType") != PREDICATE:
        raise IntegrityError(f"provenance is not an in-toto statement with the predicate {PREDICATE}")
    return plain


def _model_predicate(record: Record, model: str, version: int, checkpoint: str) -> dict[str, Any]:
    external = {"model": model, "version": str(version), "commit": record.commit.sha, "run": record.run.id,
                "project": record.run.project, "line": record.inputs.line}  # fmt: skip
    if record.commit.branch:
        external["branch"] = record.commit.branch
    internal: dict[str, Any] = {
        "plan": record.plan.digest if record.plan else "", "strategy": record.plan.name if record.plan else "",
        "seeds": [str(seed) for seed in record.inputs.seeds], "checkpoint": checkpoint,
        **({"federation": _federation(record.federated)} if record.federated is not None else {}),
    }  # fmt: skip
    launcher = record.gang.launcher if record.gang else "unknown"
    return {
        "buildDefinition": {
            "buildType": MODEL_BUILD_TYPE,
            "externalParameters": external,
            "internalParameters": internal,
            "resolvedDependencies": _dependencies(record),
        },
        "runDetails": {
            "builder": {"id": f"urn:gangline:launcher:{launcher}", "version": dict(record.inputs.versions)},
            "metadata": {"invocationId": record.run.id, "startedOn": record.run.created},
        },
    }


def _federation(found: FederationResult) -> dict[str, str]:
    """Where the data were, and what was promised of their privacy."""
    return {
        "engine": found.engine, "members": str(found.roster), "rounds": str(found.merged),
        "secureSum": str(found.secure_sum).lower(), "epsilon": "none" if found.epsilon is None else str(found.epsilon),
        "spent": "none" if found.epsilon is None else "unknown" if found.spent is None else str(found.spent),
        "accountant": found.accountant or "none",
        "data": "simulated here" if found.engine == "simulated" else f"stayed with {found.roster} members",
    }  # fmt: skip


def _dependencies(record: Record) -> list[dict[str, Any]]:
    commit = {"name": "commit", "digest": {"gitCommit": record.commit.sha, "gitTree": record.commit.tree}}
    inputs = record.inputs
    named = {"code": inputs.code, "environment": inputs.environment, "data": inputs.data}
    rows = [{"name": name, "digest": {"sha256": _hex(value)}} for name, value in named.items() if value]
    image = [{"name": "image", "uri": inputs.image}] if inputs.image else []
    sets = [{"name": "dataset", "uri": f"dataset:{dataset}"} for dataset in inputs.datasets]
    return [commit, *rows, *image, *sets]


def _hex(digest: str) -> str:
    """The digits of a digest or of a blob key."""
    return digest.rpartition("/")[2].removeprefix("sha256:")


def _library() -> tuple[Any, Any, Any, Any]:
    try:
        from google.protobuf import json_format  # type: ignore[import-untyped]  # no stubs are installed
        from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
        from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
        from in_toto_attestation.v1.statement import Statement
    except ImportError as error:
        raise NotInstalledError(
            f"publishing needs in-toto-attestation, {error}; pip install 'gangline[publish]'"
        ) from error
    return Statement, ResourceDescriptor, provenance_pb2.Provenance, json_format


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageProvenance:
    """Content of the statement on an image."""

    image: str
    """`name@sha256:...`."""
    key: str
    """Key of the recipe; of an unchanged base image a digest of its reference."""
    builder: str
    base: str
    lock: str
    """SHA-256 of the lock; "" where nothing was installed."""
    commit: str
    """Commit that the image was first built for."""
    sbom: str
    """Blob key; "" for an unchanged base image."""
    created: str
    versions: dict[str, str]


def sign_image_provenance(provenance: ImageProvenance, key: SigningKey) -> bytes:
    """The signed envelope, as JSON."""
    payload = canonical(_image_statement(provenance))
    signature = key.sign(_envelope_bytes(payload))
    return canonical({
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": key.key_id, "sig": signature}],
    })  # fmt: skip


def read_image_provenance(envelope: bytes, keys: Mapping[str, PublicKey]) -> tuple[ImageProvenance, str]:
    """(content, id of the trusted key that signed it).

    Raises:
        IntegrityError: There is no trusted signature, or the payload is not such a statement.
    """
    if len(envelope) > _MAX_IMAGE_BYTES:
        raise IntegrityError(f"provenance of an image has {len(envelope)} bytes, wanted at most {_MAX_IMAGE_BYTES}")
    try:
        plain = json.loads(envelope)
        payload = base64.b64decode(plain["payload"], validate=True)
        signatures = [(str(each["keyid"]), str(each["sig"])) for each in plain["signatures"]]
        kind = plain["payloadType"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise IntegrityError(f"wanted a signed envelope, found something else: {error}") from error
    if kind != PAYLOAD_TYPE:
        raise IntegrityError(f"wanted an envelope of {PAYLOAD_TYPE}, found {kind!r:.80}")
    signer = _verify_signatures(payload, signatures, keys)
    return _parse_image_statement(payload), signer


def _verify_signatures(payload: bytes, signatures: list[tuple[str, str]], keys: Mapping[str, PublicKey]) -> str:
    for key_id, signature in signatures:
        if key_id in keys:
            keys[key_id].verify(signature, _envelope_bytes(payload))
            return key_id
    found = ", ".join(key_id[:16] for key_id, _ in signatures[:5]) or "no key"
    raise IntegrityError(f"provenance is signed by {found}, wanted one of {', '.join(keys) or 'no trusted key'}")


def _envelope_bytes(payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding, which is signed."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def _image_statement(provenance: ImageProvenance) -> dict[str, Any]:
    name, _, digest = provenance.image.partition("@sha256:")
    dependencies = [
        {"name": "commit", "digest": {"gitCommit": provenance.commit}},
        {"name": "base", "uri": provenance.base},
    ]
    if provenance.lock:
        dependencies.append({"name": "lock", "digest": {"sha256": provenance.lock}})
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}}],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": IMAGE_BUILD_TYPE,
                "externalParameters": asdict(provenance),
                "resolvedDependencies": dependencies,
            },
            "runDetails": {
                "builder": {"id": f"urn:gangline:builder:{provenance.builder}", "version": dict(provenance.versions)},
                "metadata": {"startedOn": provenance.created},
            },
        },
    }


def _parse_image_statement(payload: bytes) -> ImageProvenance:
    try:
        plain = json.loads(payload)
        found = plain["predicate"]["buildDefinition"]["externalParameters"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise IntegrityError(f"wanted an in-toto statement on an image, found something else: {error}") from error
    provenance = from_plain(ImageProvenance, found)
    if plain != _image_statement(provenance):
        raise IntegrityError("the statement on the image contradicts itself")
    return provenance
