"""Files of a model folder by digest: listing, checks of names and weights, upload and download."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from gangline.checkpoint.format.safetensors import header_length, parse_header
from gangline.errors import IntegrityError, StorageError
from gangline.registry.types import ModelFile
from gangline.spec.codec import digest
from gangline.spec.record import Artifact
from gangline.storage.objects.protocol import ObjectStore

SIGNATURE = "model.sig"
CONFIG, CARD, SBOM, PROVENANCE = "config.json", "card.md", "sbom.cdx.json", "provenance.json"
COMPLETE = (CONFIG, CARD, SBOM, PROVENANCE, SIGNATURE)
"""Beside the weights: what every version has."""
_KINDS = {CONFIG: "config", CARD: "card", SBOM: "sbom", PROVENANCE: "provenance", SIGNATURE: "signature"}
_MEDIA_TYPES = {
    ".json": "application/json",
    ".md": "text/markdown",
    ".safetensors": "application/vnd.safetensors",
    ".sig": "application/vnd.dev.sigstore.bundle.v0.3+json",
}
_PIECE_BYTES = 8 * 2**20


def list_folder(folder: Path, key_prefix: str, *, of_program: bool = False) -> tuple[ModelFile, ...]:
    """Files of a model folder, sorted; `of_program`: its weights are whatever files a program wrote.

    Raises:
        IntegrityError: A link, a folder inside, or a file of no allowed format.
    """
    paths = sorted(folder.iterdir())
    check_names((path.name for path in paths), of_program=of_program)
    for path in paths:
        if path.is_symlink() or not path.is_file():
            raise IntegrityError(f"{path}: a model folder holds plain files alone, this is none; remove it")
    return tuple(
        ModelFile(path=path.name, key=f"{key_prefix}/{path.name}", size_bytes=path.stat().st_size, sha256=_digest(path))
        for path in paths
    )


def check_names(names: Iterable[str], *, of_program: bool = False) -> None:
    """Refuse what is no part of a model: pickles of any suffix, archives, programs. Of a program's own files any plain
    name may stand: nothing here ever opens them.

    Raises:
        IntegrityError: Names the file and the formats that are allowed.
    """
    allowed = sorted({*COMPLETE, "*.safetensors", "*.safetensors.index.json"})
    for name in names:
        plain = Path(name).name == name
        weights = name.endswith((".safetensors", ".safetensors.index.json"))
        if not plain or not (weights or name in COMPLETE or (of_program and not name.startswith("."))):
            raise IntegrityError(
                f"{name!r} is no file of a model: allowed are {', '.join(allowed)}; nothing was loaded"
            )


def check_weights(folder: Path) -> str:
    """One sentence on the weights of a folder; their headers are read, no tensor is.

    Raises:
        IntegrityError: A file is no safetensors file, or there is none.
    """
    count, paths = 0, sorted(folder.glob("*.safetensors"))
    for path in paths:
        size = path.stat().st_size
        with path.open("rb") as file:
            first = file.read(8)
            try:
                count += len(parse_header(first + file.read(header_length(first, size) - len(first)), size))
            except IntegrityError as error:
                raise IntegrityError(f"{path.name} holds no tensors: {error}") from error
    if not paths:
        raise IntegrityError(f"{folder.name} holds no weights: wanted *.safetensors")
    return f"{count} tensors in {len(paths)} file{'s' if len(paths) > 1 else ''}"


def weight_files(files: Iterable[ModelFile]) -> tuple[ModelFile, ...]:
    """All but what describes them."""
    return tuple(file for file in files if file.path not in COMPLETE)


def weights_digest(files: Iterable[ModelFile]) -> str:
    """One digest over the weight files of a folder."""
    return digest([[file.path, file.sha256] for file in weight_files(files)])


def upload_files(store: ObjectStore, folder: Path, files: Iterable[ModelFile]) -> None:
    """Write each file to its key, large ones in parts.

    Raises:
        IntegrityError: Something lies there: keys are of one attempt, which nobody else writes.
    """
    for file in files:
        path = folder / file.path
        if store.head(file.key) is not None:
            raise IntegrityError(f"{file.key} is there already: another program writes where this attempt does")
        if file.size_bytes <= _PIECE_BYTES:
            if store.put_if_absent(file.key, path.read_bytes()) is None:
                raise IntegrityError(
                    f"{file.key} was written meanwhile: another program writes where this attempt does"
                )
            continue
        with store.upload(file.key) as upload, path.open("rb") as source:
            while piece := source.read(_PIECE_BYTES):
                upload.part(piece)


def download_file(store: ObjectStore, file: ModelFile, folder: Path, *, of_program: bool = False) -> Path:
    """Fetch one file into `folder`, verified while it is written.

    Raises:
        StorageError: It is not in the store.
        IntegrityError: Size or digest differ; what was written is removed.
    """
    check_names([file.path], of_program=of_program)
    target = folder / file.path
    found = hashlib.sha256()
    with target.open("wb") as sink:
        for start in range(0, max(file.size_bytes, 1), _PIECE_BYTES):
            piece = _piece(store, file, start)
            found.update(piece)
            sink.write(piece)
    if found.hexdigest() != file.sha256:
        target.unlink()
        raise IntegrityError(f"{file.key}: wanted digest {file.sha256[:12]}, found {found.hexdigest()[:12]}")
    return target


def artifacts(files: Iterable[ModelFile]) -> tuple[Artifact, ...]:
    """The files as they stand in a record."""
    return tuple(
        Artifact(
            kind=_KINDS.get(file.path, "model"),
            key=file.key,
            media_type=_MEDIA_TYPES.get(Path(file.path).suffix, "application/octet-stream"),
            size_bytes=file.size_bytes,
            sha256=file.sha256,
        )
        for file in files
    )


def _piece(store: ObjectStore, file: ModelFile, start: int) -> bytes:
    blob = store.get(file.key, start, min(_PIECE_BYTES, file.size_bytes - start))
    if blob is None:
        raise StorageError(f"{store.url}: {file.key} is not there; was the run deleted?")
    if blob.size_bytes != file.size_bytes:
        raise IntegrityError(f"{file.key}: wanted {file.size_bytes} bytes, found {blob.size_bytes}")
    return blob.data


def _digest(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
