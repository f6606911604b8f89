"""Artifacts of a run, including the files of its program: listed, selected, downloaded.

A download goes into a folder, where a file gets its name only once it has the digest of the record. The folder may be
a checkout of the commit that wrote the files, so no link below it is followed, wherever it leads, and nothing is
written that git obeys.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedRandom, BufferedReader
from pathlib import Path

from gangline.errors import IntegrityError, StorageError, UsageError, storage_errors
from gangline.spec.globs import matches
from gangline.spec.output_limits import MOST_OUTPUTS_BYTES
from gangline.spec.program_files import FOLDER, OUTPUT_KIND, OUTPUTS_KIND, Outputs
from gangline.spec.record import Artifact, Record
from gangline.storage.objects.blobs import PREFIX
from gangline.storage.objects.paths import check_new_path, check_path, clash, is_of_git
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
        RunArtifact(kind=artifact.kind, path=_path(artifact, record.prefix), key=artifact.key,
             size_bytes=artifact.size_bytes, sha256=artifact.sha256)
        for artifact in record.artifacts
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
    named = [item for item in items if matches(item.path, pattern)]
    artifacts = [artifact for artifact in named if not is_of_git(artifact.path)]
    if named and not artifacts:
        raise UsageError(f"{named[0].path} is of a git folder, and git obeys what is in one: it is never fetched")
    if not artifacts:
        existing = ", ".join(item.path for item in items[:8]) or "none"
        raise UsageError(f"wanted a file that matches {pattern!r}, found none; files of the run: {existing}")
    paths = [artifact.path for artifact in artifacts]
    if duplicate := next((path for path in paths if paths.count(path) > 1), None):
        kinds = ", ".join(artifact.kind for artifact in artifacts if artifact.path == duplicate)
        raise UsageError(f"{duplicate} exists {paths.count(duplicate)} times, as {kinds}; choose one with --kind")
    return artifacts


def _outputs(store: ObjectStore, record: Record) -> Iterator[RunArtifact]:
    output_list = read_output_list(store, record)
    key = next((artifact.key for artifact in record.artifacts if artifact.kind == OUTPUTS_KIND), "")
    for file in output_list.files if output_list else ():
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


_PIECE_BYTES = 8 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_IN_THE_WAY = (errno.ELOOP, errno.ENOTDIR)


def fetch_artifacts(
    store: ObjectStore, items: Sequence[RunArtifact], folder: Path, *, overwrite: bool
) -> Iterator[tuple[RunArtifact, Path]]:
    """Download each into `folder`, to its path; files that already have the digest are kept.

    Raises:
        UsageError: Another file, or a link, has the path of one, or two paths are one there; nothing was downloaded.
        StorageError: The store failed; another call continues where this one stopped.
        IntegrityError: A path is no plain one, or of a git folder; or the store's content is not that of the record,
            and the partial file is deleted.
    """
    for item in items:
        check_new_path(item.path)
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if found := clash((artifact.path for artifact in items), folder):
            raise UsageError(
                f"{found[0]} and {found[1]} are one name on the file system of {folder}; --to a folder on one that"
                " keeps letter case, or fetch them one by one into two folders"
            )
        missing = [artifact for artifact in items if not _is_there(artifact, folder, overwrite=overwrite)]
    for item in items:
        if item in missing:
            with storage_errors(folder / item.path), _parent(folder, item.path, make=True) as parent:
                _fetch(store, item, parent)
        yield item, folder / item.path


def _is_there(item: RunArtifact, folder: Path, *, overwrite: bool) -> bool:
    """Whether the file is there already; raises UsageError where it cannot be written."""
    name = item.path.rpartition("/")[2]
    try:
        with _parent(folder, item.path, make=False) as parent:
            if _has_content(item, name, parent):
                return True
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(status.st_mode) or not overwrite:
        works = "--to another folder works" if stat.S_ISDIR(status.st_mode) else "--overwrite replaces it"
        raise UsageError(f"{folder / item.path} exists and is another file; {works}")
    return False


@contextmanager
def _parent(folder: Path, path: str, *, make: bool) -> Iterator[int]:
    """Descriptor of the folder that `path` lies in, reached from `folder` without following a link.

    Raises:
        UsageError: A link or a file is in the place of a folder.
        FileNotFoundError: A folder is missing, and `make` is False.
    """
    at, handle = folder, os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in path.split("/")[:-1]:
            at /= part
            below = _step(at, handle, make=make)
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


def _step(path: Path, parent: int, *, make: bool) -> int:
    if make:
        with suppress(FileExistsError):
            os.mkdir(path.name, dir_fd=parent)
    try:
        return os.open(path.name, _FOLDER, dir_fd=parent)
    except OSError as error:
        if error.errno not in _IN_THE_WAY:
            raise
        raise UsageError(
            f"{path} is a link or a file, wanted a folder: nothing is written through links; remove it, or --to another"
            " folder"
        ) from error


def _fetch(store: ObjectStore, item: RunArtifact, parent: int) -> None:
    """Download to a partial file in the same folder, which a later call continues."""
    part = f".{item.sha256[:16]}.part"
    resumed = part in os.listdir(parent)
    found = _stream(store, item, part, parent)
    if found != item.sha256 and resumed:
        os.unlink(part, dir_fd=parent)
        found = _stream(store, item, part, parent)
    if found != item.sha256:
        os.unlink(part, dir_fd=parent)
        raise IntegrityError(f"{item.path}: wanted digest {item.sha256[:12]}, found {found[:12]} at {item.key}")
    os.replace(part, item.path.rpartition("/")[2], src_dir_fd=parent, dst_dir_fd=parent)


def _stream(store: ObjectStore, item: RunArtifact, part: str, parent: int) -> str:
    """Append the missing rest to the partial file; the digest of the whole file."""
    digest = hashlib.sha256()
    with _opened(part, os.O_RDWR | os.O_CREAT | os.O_APPEND, parent) as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
        for start in range(file.tell(), item.size_bytes, _PIECE_BYTES):
            blob = store.get(item.key, start, min(_PIECE_BYTES, item.size_bytes - start))
            if blob is None:
                raise StorageError(f"{store.url}: {item.key} is missing; was the run deleted?")
            digest.update(blob.data)
            file.write(blob.data)
    return digest.hexdigest()


def _has_content(item: RunArtifact, name: str, parent: int) -> bool:
    try:
        with _opened(name, os.O_RDONLY, parent) as file:
            same_size = os.fstat(file.fileno()).st_size == item.size_bytes
            return same_size and hashlib.file_digest(file, "sha256").hexdigest() == item.sha256
    except OSError:
        return False


def _opened(name: str, flags: int, parent: int) -> BufferedReader | BufferedRandom:
    """A regular file; raises OSError for a link, pipe, folder or device."""
    handle = os.open(name, flags | _FILE, 0o666, dir_fd=parent)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", name)
    return os.fdopen(handle, "rb") if flags == os.O_RDONLY else os.fdopen(handle, "r+b")
