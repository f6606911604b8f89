"""Training data files on this node: downloaded from the store, each verified before it appears."""

from pathlib import Path, PurePosixPath

from gangline.errors import ConfigError
from gangline.spec.data_source import DataFile
from gangline.spec.plan import Plan
from gangline.storage.objects.placed_files import fetch_file
from gangline.storage.objects.protocol import ObjectStore


def data_paths(plan: Plan, folder: Path) -> list[str]:
    """Paths of the files of `plan` below `folder`, sorted by name.

    Raises:
        ConfigError: A name leads out of the folder.
    """
    return [str(_place(folder, file)) for file in sorted(plan.data.files, key=lambda file: file.path)]


def fetch_data_files(plan: Plan, folder: Path, store: ObjectStore) -> None:
    """Download the missing files into `folder`, which is created; called by one rank of a node.

    Raises:
        StorageError: The store failed, or lacks a file.
        IntegrityError: A file of the store does not have the digest in the plan.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for file in plan.data.files:
        place = _place(folder, file)
        if not (place.exists() and place.stat().st_size == file.size_bytes):  # it was renamed after verification
            fetch_file(store, file, place)


def _place(folder: Path, file: DataFile) -> Path:
    path = PurePosixPath(file.path)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ConfigError(f"data file {file.path!r}: wanted a path inside the data folder")
    return folder / path
