"""Checks that make a version fit for promotion; every check runs, whatever the others found."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gangline.build.image_store import verify_image
from gangline.errors import GanglineError, GateError, IntegrityError
from gangline.registry import git_tags, model_files
from gangline.registry.folder_signature import verify_folder
from gangline.registry.publish_rules import check_gates, unpublishable_reason
from gangline.registry.types import CheckResult, Version, tag_name
from gangline.registry.versions import version_digest
from gangline.signing.keys import PublicKey
from gangline.signing.model_provenance import check_model_provenance
from gangline.signing.record_seal import check_seal
from gangline.spec.record import Record
from gangline.storage.objects.protocol import ObjectStore
from gangline.units import format_bytes

ReadRecord = Callable[[ObjectStore, str], Record | None]
"""Reads the record at a store prefix; None where there is none."""


@dataclass(frozen=True, kw_only=True)
class VersionEvidence:
    """Where a version's parts are looked for."""

    store: ObjectStore
    repo: Path | None
    """None: not in a repository; the tag cannot be checked then, and the check says so."""
    keys: Mapping[str, PublicKey]
    """Trusted keys by id."""
    read_record: ReadRecord


def run_check(name: str, look: Callable[[], str]) -> CheckResult:
    """Run one check: its sentence, or the error's."""
    try:
        return CheckResult(name=name, ok=True, text=look())
    except GanglineError as error:
        return CheckResult(name=name, ok=False, text=str(error))


def check_version(version: Version, evidence: VersionEvidence) -> tuple[CheckResult, ...]:
    """Files, their neighbours, parts, signature, provenance, record and tag of one version; fetches every file."""
    with tempfile.TemporaryDirectory(prefix="gangline-verify-") as place:
        folder = Path(place) / version.model
        folder.mkdir()
        fetched = run_check("files", lambda: _fetch(version, evidence.store, folder))
        return (
            fetched,
            run_check("alone", lambda: _alone(version, evidence.store)),
            run_check("complete", lambda: _complete(version)),
            run_check("signature", lambda: _only_if(fetched, lambda: _signature(version, folder, evidence.keys))),
            run_check("provenance", lambda: _only_if(fetched, lambda: _provenance(version, folder))),
            run_check("record", lambda: _record(version, evidence)),
            run_check("image", lambda: _image(version, evidence)),
            run_check("tag", lambda: _tag(version, evidence)),
        )


def _only_if(fetched: CheckResult, look: Callable[[], str]) -> str:
    """What damaged files would say of themselves misleads."""
    if not fetched.ok:
        raise IntegrityError("not looked at: the files are not those that the version lists")
    return look()


def _fetch(version: Version, store: ObjectStore, folder: Path) -> str:
    model_files.check_names((file.path for file in version.files), of_program=version.of_program)
    for file in version.files:
        model_files.download_file(store, file, folder, of_program=version.of_program)
    if model_files.weights_digest(version.files) != version.weights:
        raise IntegrityError(f"{version.key} names other weights than it lists")
    size = format_bytes(sum(file.size_bytes for file in version.files))
    return f"{len(version.files)} files, {size}, digests as listed"


def _alone(version: Version, store: ObjectStore) -> str:
    """Who copies the folder gets all that lies there, whatever the version lists."""
    listed = {file.key for file in version.files}
    for folder in sorted({key.rpartition("/")[0] for key in listed}):
        for found in store.list(f"{folder}/"):
            if found.key not in listed:
                raise IntegrityError(f"{found.key}: {version.key} does not list it; find out who put it there")
    return "nothing else lies beside them"


def _complete(version: Version) -> str:
    there = {file.path for file in version.files}
    missing = sorted(set(model_files.COMPLETE) - there)
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
    later = {model_files.PROVENANCE, model_files.SIGNATURE}
    subjects = [file for file in version.files if file.path not in later]
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
    if version.origin_key not in {each.key for each in record.artifacts}:
        raise IntegrityError(f"run {record.run.id} left no checkpoint {version.checkpoint}")
    if version.of_program and not record.inputs.values.get("publish.files"):
        raise IntegrityError(f"run {record.run.id} publishes no files of its program: publish.files names none")
    return f"run {record.run.id} passed, sealed: {check_gates(record)}"


def _sealed_record(version: Version, evidence: VersionEvidence) -> Record:
    record = evidence.read_record(evidence.store, version.record)
    if record is None:
        raise IntegrityError(f"{version.record}/record.json is not there: nothing says that the run passed")
    return check_seal(record, evidence.keys)


def _image(version: Version, evidence: VersionEvidence) -> str:
    """What ranks ran in: an image that a trusted key vouches for, with its bill; or no image at all."""
    record = _sealed_record(version, evidence)
    if record.inputs.image is None:
        return "none: trained in the environment of its driver"
    found = [each.key for each in record.artifacts if each.kind == "image-provenance"]
    if not found:
        raise IntegrityError(f"nobody vouches for {record.inputs.image}: the record has no provenance of it")
    return verify_image(record.inputs.image, provenance=found[-1], store=evidence.store, keys=evidence.keys)


def _tag(version: Version, evidence: VersionEvidence) -> str:
    """By the tag here, which is brought from `origin` where it is missing; a tag there can only contradict it.

    `origin` is asked for nothing else, and not at all where the tag is here and the run's line did not push it.
    """
    name, repo = tag_name(version.model, version.version), evidence.repo
    if repo is None:
        raise IntegrityError(f"no repository here to look for the tag {name}; run it inside the model's repository")
    tag = git_tags.read_tag(repo, name)
    origin = git_tags.open_remote(repo, wanted=tag is None or _was_to_be_pushed(version, evidence))
    if tag is None and origin is not None:
        tag = git_tags.fetch_tag(origin, name)
    if tag is None:
        raise IntegrityError(f"there is no tag {name}: git does not know of {version_digest(version)[:12]}")
    git_tags.check_tag(tag, version)
    return f"{name} on {tag.commit[:8]}, here" + (_at_origin(origin, tag) if origin else "")


def _at_origin(origin: git_tags.TagRemote, tag: git_tags.Tag) -> str:
    ref = f"refs/tags/{tag.name}"
    refs = origin.refs(ref)
    if refs is None:
        return f"; {git_tags.REMOTE} does not answer: what it holds is unknown"
    if ref not in refs:
        return f"; {git_tags.REMOTE} lacks it: git push {git_tags.REMOTE} {tag.name}"
    if refs[ref] != tag.object:
        raise IntegrityError(f"{git_tags.REMOTE} has another {tag.name}: {refs[ref][:12]}, here is {tag.object[:12]}")
    return f" and on {git_tags.REMOTE}"


def _was_to_be_pushed(version: Version, evidence: VersionEvidence) -> bool:
    record = evidence.read_record(evidence.store, version.record)
    return record is not None and record.inputs.values.get("publish.push") is True
