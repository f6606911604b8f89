"""Checks of a version before promotion; every check runs, also after another one failed."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gangline.build.image_store import verify_image
from gangline.errors import GanglineError, GateError, IntegrityError
from gangline.git.repository_address import read_address
from gangline.registry import git_tags, model_files
from gangline.registry.folder_signature import verify_folder
from gangline.registry.project_owner import ProjectOwners
from gangline.registry.publish_rules import check_gates, unpublishable_reason
from gangline.registry.versions import Version, read_owner, tag_name, version_digest
from gangline.sanitize import clean
from gangline.signing.keys import PublicKey
from gangline.signing.provenance import check_model_provenance
from gangline.signing.record_seal import check_seal
from gangline.spec.record import Record
from gangline.spec.run_flags import stage
from gangline.storage.objects.protocol import ObjectStore
from gangline.units import format_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    """Result of one check."""

    name: str
    ok: bool
    text: str
    """What was found; of a failed check also what was wanted."""


ReadRecord = Callable[[ObjectStore, str], Record | None]
"""Reads the record at a store prefix; None where there is none."""


@dataclass(frozen=True, kw_only=True)
class VersionEvidence:
    """Sources that a version is checked against."""

    store: ObjectStore
    repo: Path | None
    """None: not in a repository, so the check of the tag fails."""
    keys: Mapping[str, PublicKey]
    """Trusted keys by id."""
    read_record: ReadRecord
    named: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """`[projects]` of the site."""


def run_check(name: str, check: Callable[[], str]) -> CheckResult:
    """Run one check; an error becomes a failed result."""
    try:
        return CheckResult(name=name, ok=True, text=check())
    except GanglineError as error:
        return CheckResult(name=name, ok=False, text=str(error))


def check_version(version: Version, evidence: VersionEvidence) -> tuple[CheckResult, ...]:
    """Check files, metadata, signature, provenance, record, image and tag of a version; downloads every file."""
    with tempfile.TemporaryDirectory(prefix="gangline-verify-") as place:
        folder = Path(place) / version.model
        folder.mkdir()
        return (
            *check_files(version, evidence.store, evidence.keys, folder),
            run_check("record", lambda: _record(version, evidence)),
            run_check("project", lambda: _project(version, evidence)),
            run_check("image", lambda: _image(version, evidence)),
            run_check("tag", lambda: _tag(version, evidence)),
        )


def check_files(
    version: Version, store: ObjectStore, keys: Mapping[str, PublicKey], folder: Path
) -> tuple[CheckResult, ...]:
    """Check what a server loads: every file, which are downloaded into `folder`, signature and provenance."""
    fetched = run_check("files", lambda: _fetch(version, store, folder))
    return (
        fetched,
        run_check("alone", lambda: _alone(version, store)),
        run_check("complete", lambda: _complete(version)),
        run_check("signature", lambda: _if_fetched(fetched, lambda: _signature(version, folder, keys))),
        run_check("provenance", lambda: _if_fetched(fetched, lambda: _provenance(version, folder))),
    )


def _if_fetched(fetched: CheckResult, check: Callable[[], str]) -> str:
    """Skip a check of the content of files that are damaged."""
    if not fetched.ok:
        raise IntegrityError("not checked: the files are not those that the version lists")
    return check()


def _fetch(version: Version, store: ObjectStore, folder: Path) -> str:
    model_files.check_names((file.path for file in version.files), of_program=version.of_program)
    for file in version.files:
        model_files.download_file(store, file, folder, of_program=version.of_program)
    if model_files.weights_digest(version.files) != version.weights:
        raise IntegrityError(f"{version.key}: its digest of the weights is not that of its files")
    size = format_bytes(sum(file.size_bytes for file in version.files))
    return f"{len(version.files)} files, {size}, digests as listed"


def _alone(version: Version, store: ObjectStore) -> str:
    """A copy of the folder would contain every file in it, listed or not."""
    listed = {file.key for file in version.files}
    for folder in sorted({key.rpartition("/")[0] for key in listed}):
        for entry in store.list(f"{folder}/"):
            if entry.key not in listed:
                raise IntegrityError(
                    f"{entry.key} is in the folder of {version.key}, which does not list it; find out who wrote it"
                )
    return "the folder has no other files"


def _complete(version: Version) -> str:
    missing = sorted(set(model_files.COMPLETE) - {file.path for file in version.files})
    if missing or not model_files.weight_files(version.files):
        raise IntegrityError(f"{version.key} lacks {', '.join(missing) or 'weights'}; publish it again")
    return "weights, config, card, bill of materials, provenance, signature"


def _signature(version: Version, folder: Path, keys: Mapping[str, PublicKey]) -> str:
    key_id = verify_folder(folder, keys.values())
    if key_id != version.key_id:
        raise IntegrityError(f"{version.key} names key {version.key_id}, the folder is signed by {key_id}")
    return f"by key {key_id}, which is trusted"


def _provenance(version: Version, folder: Path) -> str:
    path = folder / model_files.PROVENANCE
    if not path.is_file():
        raise IntegrityError(f"{model_files.PROVENANCE} is missing")
    written_later = {model_files.PROVENANCE, model_files.SIGNATURE}
    subjects = [file for file in version.files if file.path not in written_later]
    return check_model_provenance(
        path.read_bytes(), model=version.model, version=version.version, run=version.run, commit=version.commit,
        files=subjects,
    )  # fmt: skip


def _record(version: Version, evidence: VersionEvidence) -> str:
    record = _sealed_record(version, evidence)
    if (record.run.id, record.run.project, record.commit.sha) != (version.run, version.project, version.commit):
        raise IntegrityError(f"the record is of {record.run.id} at {record.commit.sha[:8]}, not {version.run}")
    if record.run.verdict != "passed":
        raise GateError(f"run {record.run.id} has the verdict {record.run.verdict or 'open'}, wanted passed")
    if unfit := unpublishable_reason(record):
        raise IntegrityError(f"run {record.run.id} is never promoted: {unfit}")
    if version.origin_key not in {artifact.key for artifact in record.artifacts}:
        raise IntegrityError(f"run {record.run.id} has no checkpoint {version.checkpoint} in its record")
    if version.of_program and not record.inputs.values.get("publish.files"):
        raise IntegrityError(f"run {record.run.id} publishes no files of its program: publish.files names none")
    return f"run {record.run.id} passed, sealed: {check_gates(record)}"


def _project(version: Version, evidence: VersionEvidence) -> str:
    """The model is the project's; the project is that of the repository of this clone and of the run."""
    owner = read_owner(evidence.store, version.model)
    if owner not in (None, version.project):
        raise IntegrityError(f"the model {version.model} belongs to the project {owner}, this is of {version.project}")
    record = _sealed_record(version, evidence)
    address = None if evidence.repo is None else read_address(evidence.repo)
    owners = ProjectOwners(store=evidence.store, named=evidence.named, keys=evidence.keys)
    found = owners.check(version.project, record=record, address=address)
    return found if record.commit.repository else f"{found}; its run is older than owners and names no repository"


def _sealed_record(version: Version, evidence: VersionEvidence) -> Record:
    record = evidence.read_record(evidence.store, version.record)
    if record is None:
        raise IntegrityError(f"{version.record}/record.json is missing, so the verdict of the run is unknown")
    return check_seal(record, evidence.keys)


def _image(version: Version, evidence: VersionEvidence) -> str:
    """The image that ranks ran in has a provenance signed by a trusted key, and a bill of materials."""
    record = _sealed_record(version, evidence)
    if record.inputs.image is None:
        lock = stage(record, "build").outputs.get("lock")
        where = f"an environment of {clean(str(lock), limit=80)}" if lock else "the environment of its driver"
        return f"none: trained in {where}"
    found = [artifact.key for artifact in record.artifacts if artifact.kind == "image-provenance"]
    if not found:
        raise IntegrityError(f"{record.inputs.image} has no provenance in the record")
    return verify_image(record.inputs.image, provenance=found[-1], store=evidence.store, keys=evidence.keys)


def _tag(version: Version, evidence: VersionEvidence) -> str:
    """Check the tag of this repository; a missing one is fetched from `origin`.

    `origin` is contacted only where the tag is missing here, or where the line of the run pushed it: then its tag must
    be the same.
    """
    name, repo = tag_name(version.model, version.version), evidence.repo
    if repo is None:
        raise IntegrityError(
            f"wanted the tag {name}, found no git repository here; run it inside the model's repository"
        )
    tag = git_tags.read_tag(repo, name)
    remote = git_tags.open_remote(repo, wanted=tag is None or _line_pushes_tags(version, evidence))
    if tag is None and remote is not None:
        tag = git_tags.fetch_tag(remote, name)
    if tag is None:
        raise IntegrityError(
            f"there is no tag {name}, so git has no digest to compare with {version_digest(version)[:12]}"
        )
    git_tags.check_tag(tag, version)
    return f"{name} on {tag.commit[:8]}, here" + (_compare_with_remote(remote, tag) if remote else "")


def _compare_with_remote(remote: git_tags.TagRemote, tag: git_tags.Tag) -> str:
    ref = f"refs/tags/{tag.name}"
    refs = remote.refs(ref)
    if refs is None:
        return f"; {git_tags.REMOTE} does not answer, so its tag is unknown"
    if ref not in refs:
        return f"; {git_tags.REMOTE} lacks it: git push {git_tags.REMOTE} {tag.name}"
    if refs[ref] != tag.object:
        raise IntegrityError(f"{git_tags.REMOTE} has another {tag.name}: {refs[ref][:12]}, here is {tag.object[:12]}")
    return f" and on {git_tags.REMOTE}"


def _line_pushes_tags(version: Version, evidence: VersionEvidence) -> bool:
    record = evidence.read_record(evidence.store, version.record)
    return record is not None and record.inputs.values.get("publish.push") is True
