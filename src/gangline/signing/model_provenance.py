"""Provenance of a model version: an in-toto statement with a SLSA v1 predicate on files, name, version and run.

The statement is a file of the signed folder, so the folder's signature covers it; the signature itself names neither
model nor version.
"""

import json
from collections.abc import Iterable
from typing import Any, Protocol

from gangline.errors import ConfigError, IntegrityError
from gangline.spec.record import Record

PREDICATE = "https://slsa.dev/provenance/v1"
STATEMENT = "https://in-toto.io/Statement/v1"
BUILD_TYPE = "urn:gangline:line:1"
_MAX_BYTES = 4 * 2**20


class ProvenanceSubject(Protocol):
    """A file that a statement vouches for."""

    @property
    def path(self) -> str:
        """Relative to the model folder."""
        ...

    @property
    def sha256(self) -> str: ...


def render_model_provenance(
    record: Record, *, model: str, version: int, checkpoint: str, files: Iterable[ProvenanceSubject]
) -> str:
    """The statement as JSON; `files` are the subjects, everything of the folder that is written before this."""
    statement_class, descriptor_class, predicate_class, formats = _library()
    predicate = formats.ParseDict(_predicate(record, model, version, checkpoint), predicate_class())
    subjects = [descriptor_class(name=file.path, digest={"sha256": file.sha256}).pb for file in files]
    statement = statement_class(subjects, PREDICATE, formats.MessageToDict(predicate))
    statement.validate()
    plain = formats.MessageToDict(statement.pb)
    return json.dumps(plain, sort_keys=True, indent=1, ensure_ascii=False) + "\n"


def check_model_provenance(
    data: bytes, *, model: str, version: int, run: str, commit: str, files: Iterable[ProvenanceSubject]
) -> str:
    """One sentence on what the statement says; `files` must be exactly its subjects.

    Raises:
        IntegrityError: It is no such statement, or says something else.
    """
    plain = _parse(data)
    build = plain.get("predicate", {}).get("buildDefinition", {})
    said = build.get("externalParameters", {})
    wanted = {"model": model, "version": str(version), "commit": commit, "run": run}
    for name, value in wanted.items():
        if said.get(name) != value:
            raise IntegrityError(f"provenance says {name} {said.get(name)!r}, wanted {value!r}")
    subjects = {each.get("name"): each.get("digest", {}).get("sha256") for each in plain.get("subject", [])}
    listed = {file.path: file.sha256 for file in files}
    if subjects != listed:
        differ = sorted(name for name in subjects.keys() | listed.keys() if subjects.get(name) != listed.get(name))
        raise IntegrityError(f"provenance vouches for other bytes of {', '.join(map(str, differ))}")
    return f"{model} {version} from commit {commit[:8]}, run {run}, {len(subjects)} files"


def _parse(data: bytes) -> dict[str, Any]:
    if len(data) > _MAX_BYTES:
        raise IntegrityError(f"provenance has {len(data)} bytes, more than {_MAX_BYTES}: not ours")
    try:
        plain = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"provenance is no JSON: {error}") from error
    if not isinstance(plain, dict) or plain.get("_type") != STATEMENT or plain.get("predicateType") != PREDICATE:
        raise IntegrityError(f"provenance is no in-toto statement with the predicate {PREDICATE}")
    return plain


def _predicate(record: Record, model: str, version: int, checkpoint: str) -> dict[str, Any]:
    asked = {"model": model, "version": str(version), "commit": record.commit.sha, "run": record.run.id,
             "project": record.run.project, "line": record.inputs.line}  # fmt: skip
    if record.commit.branch:
        asked["branch"] = record.commit.branch
    inside = {"plan": record.plan.digest if record.plan else "", "strategy": record.plan.name if record.plan else "",
              "seeds": [str(seed) for seed in record.inputs.seeds], "checkpoint": checkpoint}  # fmt: skip
    launcher = record.gang.launcher if record.gang else "unknown"
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": asked,
            "internalParameters": inside,
            "resolvedDependencies": _dependencies(record),
        },
        "runDetails": {
            "builder": {"id": f"urn:gangline:launcher:{launcher}", "version": dict(record.inputs.versions)},
            "metadata": {"invocationId": record.run.id, "startedOn": record.run.created},
        },
    }


def _dependencies(record: Record) -> list[dict[str, Any]]:
    commit = {"name": "commit", "digest": {"gitCommit": record.commit.sha, "gitTree": record.commit.tree}}
    inputs = record.inputs
    named = {"code": inputs.code, "environment": inputs.environment, "data": inputs.data}
    rows = [{"name": name, "digest": {"sha256": _bare(value)}} for name, value in named.items() if value]
    image = [{"name": "image", "uri": inputs.image}] if inputs.image else []
    return [commit, *rows, *image]


def _bare(digest: str) -> str:
    return digest.rpartition("/")[2].removeprefix("sha256:")


def _library() -> tuple[Any, Any, Any, Any]:
    try:
        from google.protobuf import json_format  # type: ignore[import-untyped]  # no stubs are installed
        from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
        from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
        from in_toto_attestation.v1.statement import Statement
    except ImportError as error:
        raise ConfigError(f"publishing needs in-toto-attestation, {error}; pip install 'gangline[publish]'") from error
    return Statement, ResourceDescriptor, provenance_pb2.Provenance, json_format
