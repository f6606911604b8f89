"""Files of a model folder by digest: listing, checks of names and weights, upload and download."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gangline.checkpoint.format.safetensors import header_length, parse_header
from gangline.errors import IntegrityError, StorageError
from gangline.spec.codec import digest
from gangline.spec.record import Artifact
from gangline.storage.objects.keys import is_key
from gangline.storage.objects.paths import check_new_path, folded
from gangline.storage.objects.protocol import ObjectStore
from gangline.train.model.golden import GOLDEN

SIGNATURE = "model.sig"
CONFIG, CARD, SBOM, PROVENANCE = "config.json", "card.md", "sbom.cdx.json", "provenance.json"
COMPLETE = (CONFIG, CARD, SBOM, PROVENANCE, SIGNATURE)
"""Files that every version has in addition to its weights."""
_BESIDE = {*COMPLETE, GOLDEN}
"""Files that are not weights."""
_KINDS = {
    GOLDEN: "golden",
    CONFIG: "config",
    CARD: "card",
    SBOM: "sbom",
    PROVENANCE: "provenance",
    SIGNATURE: "signature",
}
_MEDIA_TYPES = {
    ".json": "application/json",
    ".md": "text/markdown",
    ".safetensors": "application/vnd.safetensors",
    ".sig": "application/vnd.dev.sigstore.bundle.v0.3+json",
}
_PIECE_BYTES = 8 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFile:
    """One file of a version."""

    path: str
    """Relative to the model folder."""
    key: str
    """Key in the store."""
    size_bytes: int
    sha256: str


def list_folder(folder: Path, key_prefix: str, *, of_program: bool = False) -> tuple[ModelFile, ...]:
    """Files of a model folder, sorted; `of_program`: its weights are files of a program, of any format and in folders.

    Raises:
        IntegrityError: The folder has a link, a file of another format, or a folder that no program wrote.
    """
    paths = sorted(path for path in folder.rglob("*") if not of_program or path.is_symlink() or not path.is_dir())
    names = [path.relative_to(folder).as_posix() for path in paths]
    check_names(names, of_program=of_program)
    for path in paths:
        if path.is_symlink() or not path.is_file():
            raise IntegrityError(
                f"{path}: wanted only plain files in a model folder, found a link or folder; remove it"
            )
    keys = _keys(key_prefix, names)
    return tuple(
        ModelFile(path=name, key=keys[name], size_bytes=path.stat().st_size, sha256=_digest(path))
        for name, path in zip(names, paths, strict=True)
    )


def _keys(prefix: str, names: Sequence[str]) -> dict[str, str]:
    """Key of each file; one that a store cannot spell, or that letter case alone tells from another, has a digest."""
    spellings = Counter(map(folded, names))
    plain = {name: is_key(name) and spellings[folded(name)] == 1 for name in names}
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in names}
    return {name: f"{prefix}/{name if plain[name] else digests[name]}" for name in names}


def check_names(names: Iterable[str], *, of_program: bool = False) -> None:
    """Check that files have the formats of a model, so no pickle, archive or program.

    Files that a program wrote may have any plain path; they are never opened.

    Raises:
        IntegrityError: A file has another format; the message names the allowed ones.
    """
    allowed = sorted({*COMPLETE, "*.safetensors", "*.safetensors.index.json"})
    for name in names:
        if of_program:
            check_new_path(name)
            continue
        weights = name.endswith((".safetensors", ".safetensors.index.json"))
        if Path(name).name != name or not (weights or name in COMPLETE):
            raise IntegrityError(
                f"{name!r} is not a file of a model: allowed are {', '.join(allowed)}; nothing was loaded"
            )


def check_weights(folder: Path) -> str:
    """One sentence on the weights of a folder, from the headers of its files.

    Raises:
        IntegrityError: A file is not a safetensors file, or there is none.
    """
    count, paths = 0, sorted(path for path in folder.glob("*.safetensors") if path.name != GOLDEN)
    for path in paths:
        size = path.stat().st_size
        with path.open("rb") as file:
            first = file.read(8)
            try:
                count += len(parse_header(first + file.read(header_length(first, size) - len(first)), size))
            except IntegrityError as error:
                raise IntegrityError(f"{path.name} is not a safetensors file: {error}") from error
    if not paths:
        raise IntegrityError(f"{folder.name} has no weights: wanted *.safetensors")
    return f"{count} tensors in {len(paths)} file{'s' if len(paths) > 1 else ''}"


def weight_files(files: Iterable[ModelFile]) -> tuple[ModelFile, ...]:
    """The files that are not metadata."""
    return tuple(file for file in files if file.path not in _BESIDE)


def weights_digest(files: Iterable[ModelFile]) -> str:
    """One digest over the weight files of a folder."""
    return digest([[file.path, file.sha256] for file in weight_files(files)])


def upload_files(store: ObjectStore, folder: Path, files: Iterable[ModelFile]) -> None:
    """Write each file to its key, large ones in parts.

    Raises:
        IntegrityError: A key exists already: keys belong to one attempt, and only that writes them.
    """
    for file in files:
        path = folder / file.path
        if store.head(file.key) is not None:
            raise IntegrityError(f"{file.key} exists already: another program writes the files of this attempt")
        if file.size_bytes <= _PIECE_BYTES:
            if store.put_if_absent(file.key, path.read_bytes()) is None:
                raise IntegrityError(f"{file.key} was just written: another program writes the files of this attempt")
            continue
        with store.upload(file.key) as upload, path.open("rb") as source:
            while piece := source.read(_PIECE_BYTES):
                upload.part(piece)


def download_file(store: ObjectStore, file: ModelFile, folder: Path, *, of_program: bool = False) -> Path:
    """Fetch one file into `folder`, verified while it is written.

    Raises:
        StorageError: The store does not have it.
        IntegrityError: Size or digest differ; the partial file is deleted.
    """
    check_names([file.path], of_program=of_program)
    target = folder / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    digest_found = hashlib.sha256()
    with target.open("wb") as sink:
        for start in range(0, max(file.size_bytes, 1), _PIECE_BYTES):
            piece = _piece(store, file, start)
            digest_found.update(piece)
            sink.write(piece)
    if digest_found.hexdigest() != file.sha256:
        target.unlink()
        raise IntegrityError(f"{file.key}: wanted digest {file.sha256[:12]}, found {digest_found.hexdigest()[:12]}")
    return target


def artifacts(files: Iterable[ModelFile]) -> tuple[Artifact, ...]:
    """The files as artifacts of a record."""
    return tuple(
        Artifact(
            kind=_KINDS.get(file.path, "model"),
            key=file.key,
            media_type=_MEDIA_TYPES.get(Path(file.path).suffix, "application/octet-stream"),
            size_bytes=file.size_bytes,
            sha256=file.sha256,
            path=None if file.key.endswith(f"/{file.path}") else file.path,
        )
        for file in files
    )


def _piece(store: ObjectStore, file: ModelFile, start: int) -> bytes:
    blob = store.get(file.key, start, min(_PIECE_BYTES, file.size_bytes - start))
    if blob is None:
        raise StorageError(f"{store.url}: {file.key} is missing; was the run deleted?")
    if blob.size_bytes != file.size_bytes:
        raise IntegrityError(f"{file.key}: wanted {file.size_bytes} bytes, found {blob.size_bytes}")
    return blob.data


def _digest(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
