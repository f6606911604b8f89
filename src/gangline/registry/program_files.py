"""Files of a program that a line publishes: from its outputs, else from its newest save.

Digests are verified; contents are never unpickled, loaded or run.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gangline.checkpoint.format.manifest import BLOCK_BYTES, MANIFEST, FileEntry, Manifest, read_manifest
from gangline.errors import ConfigError, IntegrityError
from gangline.registry.model_files import COMPLETE
from gangline.registry.run_artifacts import RunArtifact, fetch_artifacts, output_key, read_output_list
from gangline.spec.codec import from_json
from gangline.spec.gang.status import WeightsFile
from gangline.spec.globs import any_matches
from gangline.spec.program_files import OUTPUTS_KIND, SAVE_KIND, SAVED_PATHS
from gangline.spec.record import Record
from gangline.storage.objects.paths import is_of_git
from gangline.storage.objects.protocol import ObjectStore
from gangline.units import format_bytes

IN_FOLDERS = "files"
"""Folder of a version for files whose last names are not enough to tell them apart."""
_MOST_PATHS_BYTES = 16 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramFiles:
    """Files to publish."""

    origin: str
    """Origin of the weights, as a version names it: key of the list of outputs, or folder of the save."""
    files: dict[str, WeightsFile]
    """Content of each, by its path in the version."""
    paths: tuple[str, ...]
    """Paths of the files among the outputs or in the save."""
    fetch: Callable[[Path], None]
    """Writes each file into a folder, to its path; IntegrityError where content is not that of the record."""


def find_program_files(store: ObjectStore, record: Record, *, globs: Sequence[str], key: bytes) -> ProgramFiles:
    """Outputs whose path matches `globs`; if there are none, files of the newest save whose name does.

    Raises:
        ConfigError: No file matches.
        IntegrityError: The list of outputs or the save was changed.
    """
    found = _from_outputs(store, record, globs) or _from_save(store, record, globs, key)
    if found is None:
        outputs = ", ".join(file.path for file in (record.outputs.files if record.outputs else ())) or "none"
        raise ConfigError(
            f"publish.files: wanted files of project.outputs ({outputs}) or of the newest program.save, found none"
            f" that matches {', '.join(globs)}"
        )
    return found


def names_in_version(paths: Sequence[str]) -> dict[str, str]:
    """Path of each file in a version: its last name; all whole below `files/` where two share one, or one is ours."""
    last = {path: path.rpartition("/")[2] for path in paths}
    if len(set(last.values())) == len(paths) and not set(last.values()) & {*COMPLETE, IN_FOLDERS}:
        return last
    return {path: f"{IN_FOLDERS}/{path}" for path in paths}


def _from_outputs(store: ObjectStore, record: Record, globs: Sequence[str]) -> ProgramFiles | None:
    listed = read_output_list(store, record)
    key = next((artifact.key for artifact in record.artifacts if artifact.kind == OUTPUTS_KIND), "")
    chosen = [file for file in (listed.files if listed else ()) if any_matches(file.path, globs)]
    names = names_in_version([file.path for file in chosen])
    items = [
        RunArtifact(
            kind=OUTPUTS_KIND, path=names[file.path], key=output_key(key, file.sha256), size_bytes=file.size_bytes,
            sha256=file.sha256,
        )
        for file in chosen
    ]  # fmt: skip

    def fetch(folder: Path) -> None:
        for _ in fetch_artifacts(store, items, folder, overwrite=False):
            pass

    if not items:
        return None
    files = {names[file.path]: WeightsFile(sha256=file.sha256) for file in chosen}
    return ProgramFiles(origin=key, files=files, paths=tuple(names), fetch=fetch)


def _from_save(store: ObjectStore, record: Record, globs: Sequence[str], key: bytes) -> ProgramFiles | None:
    artifact = next((each for each in record.artifacts if each.kind == SAVE_KIND), None)
    if artifact is None:
        return None
    folder = artifact.key.removesuffix(f"/{MANIFEST}")
    manifest = read_manifest(store, folder, key, sha256=artifact.sha256)
    stored = {name.partition("-")[2]: name for name in manifest.files}
    paths = _paths_of_save(store, folder, manifest, stored)
    chosen = {paths.get(name, name): stored[name] for name in stored if name != SAVED_PATHS}
    chosen = {path: name for path, name in chosen.items() if any_matches(path, globs) and not is_of_git(path)}
    names = names_in_version(list(chosen))

    def fetch(target: Path) -> None:
        for path, name in chosen.items():
            place = target / names[path]
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("xb") as file:
                for block in _blocks(store, f"{folder}/{name}", manifest.files[name]):
                    file.write(block)

    if not chosen:
        return None
    files = {names[path]: WeightsFile(blocks=manifest.files[name].content) for path, name in chosen.items()}
    return ProgramFiles(origin=folder, files=files, paths=tuple(names), fetch=fetch)


def _paths_of_save(store: ObjectStore, folder: str, manifest: Manifest, stored: Mapping[str, str]) -> dict[str, str]:
    """Path of each file that the save stored under a number, as the program named it."""
    if SAVED_PATHS not in stored:
        return {}
    entry = manifest.files[stored[SAVED_PATHS]]
    if entry.size_bytes > _MOST_PATHS_BYTES:
        raise IntegrityError(
            f"{folder}/{stored[SAVED_PATHS]}: wanted at most {format_bytes(_MOST_PATHS_BYTES)} of paths"
        )
    data = b"".join(_blocks(store, f"{folder}/{stored[SAVED_PATHS]}", entry))
    return from_json(dict[str, str], data)


def _blocks(store: ObjectStore, key: str, entry: FileEntry) -> Iterator[bytes]:
    for number, wanted in enumerate(entry.blocks):
        start = number * BLOCK_BYTES
        blob = store.get(key, start, min(BLOCK_BYTES, entry.size_bytes - start))
        if blob is None or blob.size_bytes != entry.size_bytes or hashlib.sha256(blob.data).hexdigest() != wanted:
            raise IntegrityError(f"{key}: block {number} is {'missing' if blob is None else 'not what was saved'}")
        yield blob.data
