"""The commits that a task on a cluster looks back at: a shallow clone without files, as a blob.

Stages after the build need no file of the repository; they ask which commits came before, to find base and donors.
"""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gangline.errors import StorageError
from gangline.line.base import MAX_BACK
from gangline.line.git import Repository
from gangline.line.registry.tags import keep_highest
from gangline.storage.blobs import put_blob
from gangline.storage.layer import LayerFile, fetch_layer, pack
from gangline.storage.protocol import ObjectStore

TIMEOUT_SECONDS = 120.0
_SERVING = "git -c uploadpack.allowFilter=true -c uploadpack.allowAnySHA1InWant=true upload-pack"
_LEFT_OUT = ("hooks/", "logs/", "FETCH_HEAD", "description")


def keep_history(
    repository: Repository, commit: str, store: ObjectStore, *, highest: tuple[str, int] | None = None
) -> str:
    """Key of `commit` and as many ancestors as a base is looked for in.

    Args:
        repository: Holds them.
        commit: The newest.
        store: Gets them.
        highest: Model and the highest version of it that a tag has taken: a task numbers its version above.

    Raises:
        StorageError: git cannot read the repository.
    """
    top = _git(repository.root, "rev-parse", "--show-toplevel").strip()
    with tempfile.TemporaryDirectory(prefix="gangline-") as name:
        folder = Path(name)
        _git(folder, "init", "--quiet", "--initial-branch=main")
        fetch = ("fetch", "--quiet", "--no-tags", f"--depth={MAX_BACK + 1}", "--filter=tree:0")
        _git(folder, *fetch, f"--upload-pack={_SERVING}", f"file://{top}", commit)
        _git(folder, "update-ref", "refs/heads/main", commit)
        if highest is not None:
            keep_highest(folder, *highest)
        return put_blob(store, pack(_files(folder / ".git")))


def lay_out_history(store: ObjectStore, key: str, folder: Path) -> None:
    """A repository at `folder` that knows the commits and nothing else."""
    fetch_layer(store, key, folder / ".git")


def _files(folder: Path) -> Iterator[LayerFile]:
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not name.startswith(_LEFT_OUT):
            yield LayerFile(name, path.read_bytes())


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "core.hooksPath=/dev/null", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
    if done.returncode:
        raise StorageError(f"git {arguments[0]} in {folder} failed: {done.stderr.strip()[:300]}")
    return done.stdout
