"""Artifacts of a run, including the files of its program, and their download into a folder.

Content is verified while it is downloaded: a file gets its name only once it has the digest of the record.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import IntegrityError, StorageError, UsageError, storage_errors
from gangline.spec.globs import matches
from gangline.spec.output_limits import MOST_OUTPUTS_BYTES
from gangline.spec.program_files import FOLDER, OUTPUT_KIND, OUTPUTS_KIND, Outputs
from gangline.spec.record import Record
from gangline.storage.objects.blobs import PREFIX
from gangline.storage.objects.code_layer import check_path
from gangline.storage.objects.protocol import ObjectStore, get_bounded

_PIECE_BYTES = 8 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class RunArtifact:
    """One file of a run."""

    kind: str
    path: str
    """Of an output the path that the program wrote; of an artifact its path in the run's folder."""
    key: str
    size_bytes: int
    sha256: str


def list_artifacts(store: ObjectStore, record: Record) -> list[RunArtifact]:
    """Artifacts, then outputs.

    Raises:
        StorageError, IntegrityError: The list of outputs is missing, or is not the one that the record names.
    """
    artifacts = [
        RunArtifact(kind=each.kind, path=_path(each.key, record.prefix), key=each.key, size_bytes=each.size_bytes,
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
    """Items whose path matches `pattern`, with `*` and `**` as in line.toml.

    Raises:
        UsageError: There is none, or two have one path.
    """
    found = [each for each in items if matches(each.path, pattern)]
    if not found:
        existing = ", ".join(each.path for each in items[:8]) or "none"
        raise UsageError(f"wanted a file that matches {pattern!r}, found none; files of the run: {existing}")
    paths = [each.path for each in found]
    if duplicate := next((path for path in paths if paths.count(path) > 1), None):
        kinds = ", ".join(each.kind for each in found if each.path == duplicate)
        raise UsageError(f"{duplicate} exists {paths.count(duplicate)} times, as {kinds}; choose one with --kind")
    return found


def fetch_artifacts(
    store: ObjectStore, items: Sequence[RunArtifact], folder: Path, *, overwrite: bool
) -> Iterator[tuple[RunArtifact, Path]]:
    """Download each into `folder`, to its path; files that already have the digest are kept.

    Raises:
        UsageError: Another file has the path of one; nothing was downloaded.
        StorageError: The store failed; another call continues where this one stopped.
        IntegrityError: The store's content is not that of the record; the partial file is deleted.
    """
    targets = {each.path: folder / each.path for each in items}
    missing = [each for each in items if not _has_content(targets[each.path], each)]
    taken = [each.path for each in missing if targets[each.path].exists() or targets[each.path].is_symlink()]
    if taken and not overwrite:
        raise UsageError(f"{folder / taken[0]} exists and is another file; --overwrite replaces it")
    for each in items:
        if each in missing:
            _fetch(store, each, targets[each.path])
        yield each, targets[each.path]


def _fetch(store: ObjectStore, item: RunArtifact, target: Path) -> None:
    """Download to a partial file in the same folder, which a later call continues."""
    part = target.with_name(f".{item.sha256[:16]}.part")
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        resumed = part.exists()
        found = _stream(store, item, part)
        if found != item.sha256 and resumed:
            part.unlink()
            found = _stream(store, item, part)
        if found != item.sha256:
            part.unlink()
            raise IntegrityError(f"{item.path}: wanted digest {item.sha256[:12]}, found {found[:12]} at {item.key}")
        part.replace(target)


def _stream(store: ObjectStore, item: RunArtifact, part: Path) -> str:
    """Append the missing rest to `part`; the digest of the whole file."""
    digest = hashlib.sha256()
    with part.open("a+b") as file:
        file.seek(0)
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
        for start in range(file.tell(), item.size_bytes, _PIECE_BYTES):
            blob = store.get(item.key, start, min(_PIECE_BYTES, item.size_bytes - start))
            if blob is None:
                raise StorageError(f"{store.url}: {item.key} is missing; was the run deleted?")
            digest.update(blob.data)
            file.write(blob.data)
    return digest.hexdigest()


def _has_content(target: Path, item: RunArtifact) -> bool:
    if target.is_symlink() or not target.is_file() or target.stat().st_size != item.size_bytes:
        return False
    with target.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == item.sha256


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


def _path(key: str, prefix: str) -> str:
    return key.removeprefix(f"{prefix}/") if not key.startswith(PREFIX) else key
