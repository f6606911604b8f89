"""Git for tasks without a repository: the commits before a run, and tags of versions that tasks published.

The commits are a shallow clone without files, stored as a blob, because stages after the build only need ancestors.
The caller of the pipeline, which has the repository, creates the tags.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from gangline.errors import IntegrityError, StorageError
from gangline.git import repository_address
from gangline.git.command import git_output
from gangline.git.repository import Repository
from gangline.line.record.earlier_runs import MAX_BACK
from gangline.line.record.observer import Observer
from gangline.registry import git_tags
from gangline.registry.git_tags import store_highest_number
from gangline.registry.versions import read_version, tag_name
from gangline.spec.record import Record
from gangline.spec.run_flags import stage
from gangline.storage.objects.blobs import put_blob
from gangline.storage.objects.code_layer import LayerFile, fetch_layer, pack
from gangline.storage.objects.protocol import ObjectStore

_SERVING = "git -c uploadpack.allowFilter=true -c uploadpack.allowAnySHA1InWant=true upload-pack"
_LEFT_OUT = ("hooks/", "logs/", "FETCH_HEAD", "description")


def store_history(
    repository: Repository, commit: str, store: ObjectStore, *, highest: tuple[str, int] | None = None
) -> str:
    """Store `commit` with the ancestors among which a base is searched; returns the key.

    Args:
        repository: Repository of the commit.
        commit: The newest commit.
        store: Where to store them.
        highest: Model and its highest tagged version, above which a task numbers its version.

    Raises:
        StorageError: git cannot read the repository.
    """
    top = git_output(repository.root, "rev-parse", "--show-toplevel").decode().strip()
    with tempfile.TemporaryDirectory(prefix="gangline-") as name:
        folder = Path(name)
        git_output(folder, "init", "--quiet", "--initial-branch=main")
        fetch = ("fetch", "--quiet", "--no-tags", f"--depth={MAX_BACK + 1}", "--filter=tree:0")
        git_output(folder, *fetch, f"--upload-pack={_SERVING}", f"file://{top}", commit)
        git_output(folder, "update-ref", "refs/heads/main", commit)
        address = repository_address.read_address(repository.root)
        git_output(folder, "config", repository_address.SETTING, address.text if address else top)
        if highest is not None:
            store_highest_number(folder, *highest)
        return put_blob(store, pack(_files(folder / ".git")))


def restore_history(store: ObjectStore, key: str, folder: Path) -> None:
    """Make a repository at `folder` with only these commits."""
    fetch_layer(store, key, folder / ".git")


def _files(folder: Path) -> Iterator[LayerFile]:
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not name.startswith(_LEFT_OUT):
            yield LayerFile(name, path.read_bytes())


def highest_tag(repo: Path, record: Record) -> tuple[str, int]:
    """Model that `record` would publish, and its highest tagged version; 0 if there is none.

    Includes tags of the remote if the line pushes tags.
    """
    model = str(record.inputs.values.get("publish.model") or record.run.project)
    return model, max(git_tags.taken_numbers(repo, model, _origin(repo, record)), default=0)


def tag_version(repo: Path, record: Record, store: ObjectStore, observer: Observer) -> None:
    """Tag the version that a task published; a failure is only noted."""
    made = stage(record, "publish").outputs
    version = read_version(store, str(made["model"]), int(made["version"])) if "version" in made else None
    if version is None:
        return
    name = f"{version.model} {version.version}"
    try:
        tag = git_tags.create_tag(repo, version)
        origin = _origin(repo, record)
        if origin is not None and not origin.is_mirror:
            observer.note(git_tags.announcement(origin))
        refused = git_tags.push_tag(origin, tag) if origin else None
    except StorageError as error:
        refused = f"the tag of {name} could not be created, which promote needs: {error}"
    except IntegrityError as error:
        refused = (
            f"{name} is in the store and cannot be promoted, since the tag {tag_name(version.model, version.version)}"
            f" is of another store's version; gangline run --again publishes above the highest tag: {error}"
        )
    if refused:
        observer.note(refused)


def _origin(repo: Path, record: Record) -> git_tags.TagRemote | None:
    return git_tags.open_remote(repo, wanted=record.inputs.values.get("publish.push") is True)
