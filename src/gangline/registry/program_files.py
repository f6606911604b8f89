"""Files of a program that a line publishes: from its outputs, else from its newest save.

Digests are verified; contents are never unpickled, loaded or run.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gangline.checkpoint.format.manifest import BLOCK_BYTES, MANIFEST, FileEntry, read_manifest
from gangline.errors import ConfigError, IntegrityError
from gangline.registry.model_files import COMPLETE
from gangline.registry.run_artifacts import RunArtifact, fetch_artifacts, output_key, read_output_list
from gangline.spec.gang.status import WeightsFile
from gangline.spec.globs import any_matches
from gangline.spec.program_files import OUTPUTS_KIND, SAVE_KIND
from gangline.spec.record import Record
from gangline.storage.objects.protocol import ObjectStore

_NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramFiles:
    """Files to publish."""

    origin: str
    """Origin of the weights, as a version names it: key of the list of outputs, or folder of the save."""
    files: dict[str, WeightsFile]
    """Content of each, by its last name."""
    paths: tuple[str, ...]
    """Paths of the files among the outputs; of a save the names."""
    fetch: Callable[[Path], None]
    """Writes each file into a folder, by its last name; IntegrityError where content is not that of the record."""


def find_program_files(store: ObjectStore, record: Record, *, globs: Sequence[str], key: bytes) -> ProgramFiles:
    """Outputs whose path matches `globs`; if there are none, files of the newest save whose name does.

    Raises:
        ConfigError: No file matches, two have one name, or a name is not allowed in a version.
        IntegrityError: The list of outputs or the save was changed.
    """
    found = _from_outputs(store, record, globs) or _from_save(store, record, globs, key)
    if found is None:
        outputs = ", ".join(file.path for file in (record.outputs.files if record.outputs else ())) or "none"
        raise ConfigError(
            f"publish.files: wanted files of project.outputs ({outputs}) or of the newest program.save, found none"
            f" that matches {', '.join(globs)}"
        )
    names = [Path(path).name for path in found.paths]
    for name in names:
        if names.count(name) > 1 or name in COMPLETE or not _NAME.fullmatch(name):
            raise ConfigError(
                f"publish.files: a version holds each name once, of letters, digits and ._-, none of its own"
                f" ({', '.join(COMPLETE)}), found {name!r} {names.count(name)} times"
            )
    return found


def _from_outputs(store: ObjectStore, record: Record, globs: Sequence[str]) -> ProgramFiles | None:
    listed = read_output_list(store, record)
    key = next((each.key for each in record.artifacts if each.kind == OUTPUTS_KIND), "")
    chosen = [file for file in (listed.files if listed else ()) if any_matches(file.path, globs)]
    items = [
        RunArtifact(
            kind=OUTPUTS_KIND, path=Path(file.path).name, key=output_key(key, file.sha256), size_bytes=file.size_bytes,
            sha256=file.sha256,
        )
        for file in chosen
    ]  # fmt: skip

    def fetch(folder: Path) -> None:
        for _ in fetch_artifacts(store, items, folder, overwrite=False):
            pass

    files = {Path(file.path).name: WeightsFile(sha256=file.sha256) for file in chosen}
    return (
        ProgramFiles(origin=key, files=files, paths=tuple(each.path for each in chosen), fetch=fetch) if items else None
    )


def _from_save(store: ObjectStore, record: Record, globs: Sequence[str], key: bytes) -> ProgramFiles | None:
    artifact = next((each for each in record.artifacts if each.kind == SAVE_KIND), None)
    if artifact is None:
        return None
    folder = artifact.key.removesuffix(f"/{MANIFEST}")
    manifest = read_manifest(store, folder, key, sha256=artifact.sha256)
    wanted = {stored.partition("-")[2]: (stored, entry) for stored, entry in manifest.files.items()}
    chosen = {name: each for name, each in wanted.items() if any_matches(name, globs)}

    def fetch(target: Path) -> None:
        for name, (stored, entry) in chosen.items():
            with (target / name).open("xb") as file:
                for block in _blocks(store, f"{folder}/{stored}", entry):
                    file.write(block)

    files = {name: WeightsFile(blocks=entry.content) for name, (_, entry) in chosen.items()}
    return ProgramFiles(origin=folder, files=files, paths=tuple(chosen), fetch=fetch) if chosen else None


def _blocks(store: ObjectStore, key: str, entry: FileEntry) -> Iterator[bytes]:
    for number, wanted in enumerate(entry.blocks):
        start = number * BLOCK_BYTES
        blob = store.get(key, start, min(BLOCK_BYTES, entry.size_bytes - start))
        if blob is None or blob.size_bytes != entry.size_bytes or hashlib.sha256(blob.data).hexdigest() != wanted:
            raise IntegrityError(f"{key}: block {number} is {'missing' if blob is None else 'not what was saved'}")
        yield blob.data
