"""Artifacts of a run by name, the files of its program included, and their download into a folder.

Content is verified while it is fetched: nothing appears under its name before all of it has the digest of the record.
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
    """One file that a run left."""

    kind: str
    path: str
    """Of an output as the program wrote it; of an artifact as it lies in the run's folder."""
    key: str
    size_bytes: int
    sha256: str


def list_artifacts(store: ObjectStore, record: Record) -> list[RunArtifact]:
    """Artifacts, then outputs.

    Raises:
        StorageError, IntegrityError: The list of outputs is gone, or is not the one that the record names.
    """
    artifacts = [
        RunArtifact(kind=each.kind, path=_path(each.key, record.prefix), key=each.key, size_bytes=each.size_bytes,
             sha256=each.sha256)
        for each in record.artifacts
    ]  # fmt: skip
    return artifacts + list(_outputs(store, record))


def read_output_list(store: ObjectStore, record: Record) -> Outputs | None:
    """The list of what the program wrote, by its digest in the record; None: there is none.

    Raises:
        StorageError, IntegrityError: It is gone, or another.
    """
    artifact = next((each for each in record.artifacts if each.kind == OUTPUTS_KIND), None)
    if artifact is None:
        return None
    blob = get_bounded(store, artifact.key, most_bytes=MOST_OUTPUTS_BYTES)
    if blob is None:
        raise StorageError(f"{store.url}: {artifact.key} is not there; was the run deleted?")
    found = hashlib.sha256(blob.data).hexdigest()
    if found != artifact.sha256:
        raise IntegrityError(f"{artifact.key}: wanted digest {artifact.sha256[:12]}, found {found[:12]}")
    outputs = Outputs.from_json(blob.data)
    for file in outputs.files:
        check_path(file.path)
    return outputs


def output_key(list_key: str, digest: str) -> str:
    """Where the output of that digest lies: beside the list that names it."""
    return f"{list_key.rpartition('/')[0]}/{FOLDER}/{digest}"


def select_artifacts(items: Sequence[RunArtifact], pattern: str) -> list[RunArtifact]:
    """Items whose path `pattern` describes, `*` and `**` as in line.toml.

    Raises:
        UsageError: There is none, or two would be the same file.
    """
    found = [each for each in items if matches(each.path, pattern)]
    if not found:
        there = ", ".join(each.path for each in items[:8]) or "nothing"
        raise UsageError(f"wanted a file that {pattern!r} names, found none; there are {there}")
    paths = [each.path for each in found]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        kinds = ", ".join(each.kind for each in found if each.path == twice)
        raise UsageError(f"{twice} is there {paths.count(twice)} times, as {kinds}; --kind says which")
    return found


def fetch_artifacts(
    store: ObjectStore, items: Sequence[RunArtifact], folder: Path, *, overwrite: bool
) -> Iterator[tuple[RunArtifact, Path]]:
    """Bring each into `folder`, under its path; what is there with its digest already stays.

    Raises:
        UsageError: Another file is in the place of one; nothing was fetched.
        StorageError: The store failed; called again, it goes on where it stopped.
        IntegrityError: What the store holds is not what the record names; nothing of that file is left.
    """
    targets = {each.path: folder / each.path for each in items}
    missing = [each for each in items if not _is_there(targets[each.path], each)]
    taken = [each.path for each in missing if targets[each.path].exists() or targets[each.path].is_symlink()]
    if taken and not overwrite:
        raise UsageError(f"{folder / taken[0]} is there already, and another file; --overwrite replaces it")
    for each in items:
        if each in missing:
            _fetch(store, each, targets[each.path])
        yield each, targets[each.path]


def _fetch(store: ObjectStore, item: RunArtifact, target: Path) -> None:
    """By way of a part beside it, which a later call goes on with."""
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
    """Append what `part` lacks; the digest of all of it."""
    digest = hashlib.sha256()
    with part.open("a+b") as file:
        file.seek(0)
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
        for start in range(file.tell(), item.size_bytes, _PIECE_BYTES):
            blob = store.get(item.key, start, min(_PIECE_BYTES, item.size_bytes - start))
            if blob is None:
                raise StorageError(f"{store.url}: {item.key} is not there; was the run deleted?")
            digest.update(blob.data)
            file.write(blob.data)
    return digest.hexdigest()


def _is_there(target: Path, item: RunArtifact) -> bool:
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
