"""Artifacts of a run, including the files of its program: listed and selected."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gangline.errors import IntegrityError, StorageError, UsageError
from gangline.spec.globs import matches
from gangline.spec.output_limits import MOST_OUTPUTS_BYTES
from gangline.spec.program_files import FOLDER, OUTPUT_KIND, OUTPUTS_KIND, Outputs
from gangline.spec.record import Artifact, Record
from gangline.storage.objects.blobs import PREFIX
from gangline.storage.objects.paths import check_path, is_of_git
from gangline.storage.objects.protocol import ObjectStore, get_bounded


@dataclass(frozen=True, kw_only=True, slots=True)
class RunArtifact:
    """One file of a run."""

    kind: str
    path: str
    """Path that the program wrote for an output; path in the run's folder for an artifact."""
    key: str
    size_bytes: int
    sha256: str


def list_artifacts(store: ObjectStore, record: Record) -> list[RunArtifact]:
    """Artifacts, then outputs.

    Raises:
        StorageError, IntegrityError: The list of outputs is missing, or is not the one that the record names.
    """
    artifacts = [
        RunArtifact(kind=each.kind, path=_path(each, record.prefix), key=each.key, size_bytes=each.size_bytes,
             sha256=each.sha256)
        for each in record.artifacts
    ]  # fmt: skip
    return artifacts + list(_outputs(store, record))


def read_output_list(store: ObjectStore, record: Record) -> Outputs | None:
    """The list of files that the program wrote, verified by its digest in the record; None: there is none.

    Raises:
        StorageError, IntegrityError: It is missing, or has another digest.
    """
    artifact = next((each for each in record.artifacts if each.kind == OUTPUTS_KIND), None)
    if artifact is None:
        return None
    blob = get_bounded(store, artifact.key, most_bytes=MOST_OUTPUTS_BYTES)
    if blob is None:
        raise StorageError(f"{store.url}: {artifact.key} is missing; was the run deleted?")
    found = hashlib.sha256(blob.data).hexdigest()
    if found != artifact.sha256:
        raise IntegrityError(f"{artifact.key}: wanted digest {artifact.sha256[:12]}, found {found[:12]}")
    outputs = Outputs.from_json(blob.data)
    for file in outputs.files:
        check_path(file.path)
    return outputs


def output_key(list_key: str, digest: str) -> str:
    """Key of the output with that digest, next to the list that names it."""
    return f"{list_key.rpartition('/')[0]}/{FOLDER}/{digest}"


def select_artifacts(items: Sequence[RunArtifact], pattern: str) -> list[RunArtifact]:
    """Items whose path matches `pattern`, with `*` and `**` as in line.toml, without those of git folders.

    Raises:
        UsageError: There is none, or two have one path.
    """
    named = [each for each in items if matches(each.path, pattern)]
    found = [each for each in named if not is_of_git(each.path)]
    if named and not found:
        raise UsageError(f"{named[0].path} is of a git folder, and git obeys what is in one: it is never fetched")
    if not found:
        existing = ", ".join(each.path for each in items[:8]) or "none"
        raise UsageError(f"wanted a file that matches {pattern!r}, found none; files of the run: {existing}")
    paths = [each.path for each in found]
    if duplicate := next((path for path in paths if paths.count(path) > 1), None):
        kinds = ", ".join(each.kind for each in found if each.path == duplicate)
        raise UsageError(f"{duplicate} exists {paths.count(duplicate)} times, as {kinds}; choose one with --kind")
    return found


def _outputs(store: ObjectStore, record: Record) -> Iterator[RunArtifact]:
    found = read_output_list(store, record)
    key = next((each.key for each in record.artifacts if each.kind == OUTPUTS_KIND), "")
    for file in found.files if found else ():
        yield RunArtifact(
            kind=OUTPUT_KIND,
            path=file.path,
            key=output_key(key, file.sha256),
            size_bytes=file.size_bytes,
            sha256=file.sha256,
        )


def _path(artifact: Artifact, prefix: str) -> str:
    key = artifact.key
    spelled = f"{key.rpartition('/')[0]}/{artifact.path}" if artifact.path else key
    return spelled if key.startswith(PREFIX) else spelled.removeprefix(f"{prefix}/")
