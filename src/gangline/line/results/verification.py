"""Verification (`gangline verify`) of a version, alias, checkpoint, run or folder, without trust in the store."""

import hashlib
import re
from collections import deque
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from gangline.checkpoint.format.folder import CheckpointFolder
from gangline.checkpoint.format.manifest import list_checkpoints
from gangline.errors import IntegrityError, UsageError
from gangline.line.record.runs import find_run
from gangline.line.record.store import read_record
from gangline.line.request.trust import checkpoint_owner
from gangline.registry import model_files
from gangline.registry.folder_signature import verify_folder
from gangline.registry.model_folder import holds_program_files
from gangline.registry.promote import check_conditional_writes, verify_alias
from gangline.registry.run_artifacts import list_artifacts
from gangline.registry.version_checks import CheckResult, VersionEvidence, check_version, run_check
from gangline.registry.versions import Alias, Version, read_alias, read_version, version_digest, version_numbers
from gangline.signing.keys import signing_key, trusted_keys
from gangline.signing.record_seal import check_seal
from gangline.spec.config.site import Site
from gangline.spec.program_files import OUTPUT_KIND
from gangline.spec.record import Artifact, Record
from gangline.storage.objects.blobs import PREFIX
from gangline.storage.objects.protocol import ObjectStore
from gangline.units import format_bytes

_VERSION = re.compile(r"(?:models/)?(?P<model>[a-z][a-z0-9-]*)/(?P<version>\d{1,9})(?:\.json)?")
_ALIAS = re.compile(r"(?P<model>[a-z][a-z0-9-]*)@(?P<alias>[a-z][a-z0-9-]*)")
_CHECKPOINT = re.compile(
    r"(?P<run>runs/(?P<project>[^/]+)/[^/]+/[^/]+)(?:/gang)?/checkpoints/step-\d{8}(?:/manifest\.json)?"
)
_RUN = re.compile(r"runs/[^/]+/[^/]+/(?P<run>[^/]+)(?:/record\.json)?/?")
_PIECE_BYTES = 8 * 2**20


def verify(
    target: str, *, store: ObjectStore, repo: Path | None, site: Site, environ: Mapping[str, str]
) -> tuple[CheckResult, ...]:
    """Every check for `target`; a failed check is a result, not an error.

    Args:
        target: `MODEL/VERSION`, `MODEL@ALIAS`, the key of either, of a checkpoint or of a run, a run id or its
            beginning, or a local model folder.

    Raises:
        UsageError: There is no such thing.
    """
    if target and Path(target).is_dir():
        return _folder(Path(target), site, environ)
    evidence = VersionEvidence(
        store=store, repo=repo, keys=trusted_keys(site, environ), read_record=read_record, named=site.projects
    )
    if match := _ALIAS.fullmatch(target):
        model = match["model"]
        name = match["alias"]
        alias = read_alias(evidence.store, model, name)
        if alias is None:
            raise UsageError(f"nothing was promoted to {model}@{name}; gangline promote {model} VERSION {name}")
        version = read_version(evidence.store, model, alias.version)
        if version is None:
            raise UsageError(f"{model}@{name} points at version {alias.version}, which is not in {evidence.store.url}")
        return (
            run_check("alias", lambda: verify_alias(alias, evidence.keys)),
            run_check("points", lambda: check_target(alias, version)),
            run_check("store", lambda: check_conditional_writes(evidence.store)),
            *check_version(version, evidence),
        )
    if match := _VERSION.fullmatch(target):
        return _version(match["model"], int(match["version"]), evidence)
    if match := _CHECKPOINT.fullmatch(target):
        prefix = target.removesuffix("/manifest.json")
        of_run = read_record(store, match["run"])
        owner = checkpoint_owner(of_run) if of_run else match["project"]
        return (_checkpoint(store, prefix, signing_key(site, environ).checkpoint_key(owner)),)
    run = _RUN.fullmatch(target)
    record = find_run(store, run["run"] if run else target)
    return _run(record, evidence, signing_key(site, environ).checkpoint_key(checkpoint_owner(record)))


def _folder(folder: Path, site: Site, environ: Mapping[str, str]) -> tuple[CheckResult, ...]:
    """Checks of a local model folder: formats first, so that no file of another format is opened."""
    of_program = holds_program_files(folder)
    formats = "as a program wrote them" if of_program else "all of allowed formats"
    listed = run_check(
        "formats", lambda: f"{len(model_files.list_folder(folder, '', of_program=of_program))} files, {formats}"
    )
    if not listed.ok:
        return (listed,)
    keys = trusted_keys(site, environ)
    weights = "not opened: only the program knows their format"
    return (
        listed,
        run_check("weights", lambda: weights if of_program else model_files.check_weights(folder)),
        run_check("signature", lambda: f"by key {verify_folder(folder, keys.values())}, which is trusted"),
    )


def _version(model: str, number: int, evidence: VersionEvidence) -> tuple[CheckResult, ...]:
    version = read_version(evidence.store, model, number)
    if version is None:
        existing = ", ".join(map(str, version_numbers(evidence.store, model))) or "none"
        raise UsageError(f"there is no {model} {number} in {evidence.store.url}; versions of {model}: {existing}")
    return check_version(version, evidence)


def check_target(alias: Alias, version: Version) -> str:
    """Check that the version is the one that was promoted."""
    if alias.version_digest != version_digest(version):
        raise IntegrityError(f"{version.key} is not the file that was promoted: {version_digest(version)[:12]}")
    return f"at version {alias.version}, {alias.version_digest[:12]}"


def _checkpoint(store: ObjectStore, prefix: str, key: bytes) -> CheckResult:
    """Check of the signature, and of the size and digest of every file."""
    if store.head(f"{prefix}/manifest.json") is None:
        raise UsageError(f"there is no checkpoint {prefix} in {store.url}: it has no manifest.json")

    def check() -> str:
        folder = CheckpointFolder.open(store, prefix, key)
        for name in sorted(folder.manifest.files):
            deque(folder.file(name).every_block(), maxlen=0)
        size = format_bytes(folder.manifest.size_bytes)
        return f"signed, step {folder.manifest.step}, {len(folder.manifest.files)} files, {size}, digests as listed"

    return run_check(prefix.rpartition("/")[2], check)


def _run(record: Record, evidence: VersionEvidence, key: bytes) -> tuple[CheckResult, ...]:
    store = evidence.store
    checkpoints = list_checkpoints(store, f"{record.gang_prefix}/checkpoints")
    return (
        run_check("record", lambda: _sealed(record, evidence)),
        *(run_check(_title(artifact), partial(_artifact, store, artifact)) for artifact in record.artifacts),
        *([run_check("outputs", lambda: _outputs(store, record))] if record.outputs else []),
        *(_checkpoint(store, checkpoint.prefix, key) for checkpoint in checkpoints),
    )


def _outputs(store: ObjectStore, record: Record) -> str:
    """Check every output file of the program against the list that the record names."""
    artifacts = [run_artifact for run_artifact in list_artifacts(store, record) if run_artifact.kind == OUTPUT_KIND]
    for artifact in artifacts:
        _check_digest(store, artifact.key, artifact.size_bytes, artifact.sha256)
    return f"{len(artifacts)} files, {format_bytes(sum(each.size_bytes for each in artifacts))}, digests as listed"


def _sealed(record: Record, evidence: VersionEvidence) -> str:
    check_seal(record, evidence.keys)
    key_id = record.seal.key_id if record.seal else ""
    return f"{record.run.id} {record.run.verdict or record.run.state}, write {record.seq}, sealed by key {key_id}"


def _title(artifact: Artifact) -> str:
    """File name of an artifact; of a blob its kind and digest."""
    name = artifact.key.rpartition("/")[2]
    return f"{artifact.kind} {name[:8]}" if artifact.key.startswith(PREFIX) else name


def _artifact(store: ObjectStore, artifact: Artifact) -> str:
    _check_digest(store, artifact.key, artifact.size_bytes, artifact.sha256)
    return f"{format_bytes(artifact.size_bytes)}, digest as recorded"


def _check_digest(store: ObjectStore, key: str, size_bytes: int, wanted: str) -> None:
    digest, read = hashlib.sha256(), 0
    while read < max(size_bytes, 1):
        blob = store.get(key, read, _PIECE_BYTES) if size_bytes else store.get(key)
        if blob is None or blob.size_bytes != size_bytes:
            found = f"{blob.size_bytes} bytes" if blob else "nothing"
            raise IntegrityError(f"{key}: wanted {size_bytes} bytes, found {found}")
        digest.update(blob.data)
        read += max(len(blob.data), 1)
    if digest.hexdigest() != wanted:
        raise IntegrityError(f"{key}: wanted digest {wanted[:12]}, found {digest.hexdigest()[:12]}")
