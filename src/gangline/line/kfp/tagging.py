"""Tags of versions that tasks publish: tasks have no repository, so whoever called the pipeline has it for them."""

from pathlib import Path

from gangline.errors import IntegrityError, StorageError
from gangline.line.observer import Observer
from gangline.line.registry import tags
from gangline.line.registry.types import tag_name
from gangline.line.registry.versions import read_version
from gangline.line.states import stage
from gangline.spec.record import Record
from gangline.storage.protocol import ObjectStore


def highest_tag(repo: Path, record: Record) -> tuple[str, int]:
    """Model that `record` would publish, and the highest version that a tag has taken: 0 where there is none.

    The remote is asked where the line pushes tags to it.
    """
    model = str(record.inputs.values.get("publish.model") or record.run.project)
    return model, max(tags.taken_numbers(repo, model, _origin(repo, record)), default=0)


def tag_version(repo: Path, record: Record, store: ObjectStore, observer: Observer) -> None:
    """Tag the version that a task published; what keeps it from its tag is noted and changes nothing else."""
    made = stage(record, "publish").outputs
    version = read_version(store, str(made["model"]), int(made["version"])) if "version" in made else None
    if version is None:
        return
    name = f"{version.model} {version.version}"
    try:
        tag = tags.create_tag(repo, version)
        origin = _origin(repo, record)
        if origin is not None and not origin.is_mirror:
            observer.note(tags.announcement(origin))
        refused = tags.push_tag(origin, tag) if origin else None
    except StorageError as error:
        refused = f"the tag of {name} could not be made, promote waits for it: {error}"
    except IntegrityError as error:
        refused = (
            f"{name} is in the store and cannot be promoted, since the tag {tag_name(version.model, version.version)}"
            f" is of another store's version; gangline run --again publishes above the highest tag: {error}"
        )
    if refused:
        observer.note(refused)


def _origin(repo: Path, record: Record) -> tags.Origin | None:
    return tags.open_origin(repo, wanted=record.inputs.values.get("publish.push") is True)
