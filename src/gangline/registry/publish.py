"""Publication of a run that passed as `models/<name>/<version>.json`: export, sign, upload, claim the number, tag.

A version exists when its file does: everything that the file names is uploaded before. A try that was killed at any
point is repeated without a second version, because the same run with the same weights finds the version that exists.
The files of each try lie in a folder of its own, so a driver that lost its lease and resumes changes nothing that a
version names.
"""

import secrets
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from gangline.checkpoint.format.export import export_model
from gangline.errors import IntegrityError, StorageError
from gangline.launch.sandbox.module_runner import ModuleRunner
from gangline.registry import git_tags, model_files
from gangline.registry.model_folder import write_config, write_metadata
from gangline.registry.program_files import ProgramFiles, find_program_files
from gangline.registry.publish_rules import check_rules
from gangline.registry.smoke_test import run_smoke_test
from gangline.registry.types import NotPublished, Published, Version, tag_name
from gangline.registry.versions import check_name, list_versions, require_owner, version_numbers
from gangline.signing.keys import SigningKey
from gangline.spec.codec import to_plain
from gangline.spec.config.line import Line
from gangline.spec.program_files import SAVE_KIND
from gangline.spec.record import Record
from gangline.storage.objects.protocol import ObjectStore
from gangline.units import format_bytes

TRIES = 16


@dataclass(frozen=True, kw_only=True)
class _Job:
    """One call's arguments, passed on together."""

    store: ObjectStore
    record: Record
    line: Line
    key: SigningKey
    repo: Path
    folder: Path
    checkpoint: str
    names: Mapping[str, str]
    model: str
    still_driving: Callable[[], object]
    origin: git_tags.TagRemote | None
    source: ProgramFiles | None = None
    """Of files that a program wrote; None: the checkpoint is exported."""

    @property
    def of_program(self) -> bool:
        return self.source is not None

    @property
    def manifest_sha256(self) -> str:
        """Of the checkpoint, as the driver found it when the training ended.

        Raises:
            IntegrityError: The record names no such checkpoint.
        """
        wanted = f"{self.checkpoint}/manifest.json"
        found = [each.sha256 for each in self.record.artifacts if each.key == wanted and each.kind == "checkpoint"]
        if not found:
            raise IntegrityError(f"{self.record.run.id} left no checkpoint {self.checkpoint}, as its record says")
        return found[-1]


def publish(
    *,
    store: ObjectStore,
    record: Record,
    line: Line,
    key: SigningKey,
    repo: Path,
    workdir: Path,
    checkpoint: str | None,
    names: Mapping[str, str] = MappingProxyType({}),
    still_driving: Callable[[], object] = lambda: None,
    announce: Callable[[str], object] = lambda _: None,
    runner: ModuleRunner,
    python: Callable[[], str | None],
) -> Published | NotPublished:
    """Make `record`'s model a version, or find the one that an earlier try made.

    Args:
        store: Of the run.
        record: The run, with gates and proof.
        line: Effective line of the commit.
        key: Signs the model; its `checkpoint_key` verifies the checkpoint.
        repo: Repository that holds the commit: gets the tag.
        workdir: Folder for the export; a `model` folder in it is replaced.
        checkpoint: Store prefix of the step to export; None where the program saved none. Not asked for where the line
            names files to publish.
        names: Name of a tensor in the model -> its name in the version; the others keep theirs.
        still_driving: Raises once another driver has the run; asked right before the version is claimed.
        announce: Told, before it is done, what leaves this machine for a git remote.
        runner: Runs the model's code, for the smoke test.
        python: Interpreter of the commit's environment, asked for the smoke test of a task only; None: the driver's.

    Raises:
        IntegrityError: A checkpoint that is refused or was changed since, a model of another project, or a version's
            name that is taken.
        GateError: A gate or the proof says no.
        TrainingError: The exported model did not answer.
        ConfigError: The libraries of `gangline[publish]` are not installed, or publish.files names nothing.
    """
    skipped = check_rules(record, line)
    if skipped is not None:
        return skipped
    source = _program_files(store, record, line, key)
    origin_of_weights = source.origin if source is not None else checkpoint
    if origin_of_weights is None:
        return NotPublished(reason=_no_weights_reason(record))
    model = line.publish.model or line.project.name
    check_name("a model", model)
    require_owner(store, model, record.run.project)
    job = _Job(
        store=store, record=record, line=line, key=key, repo=repo, folder=workdir / "model",
        checkpoint=origin_of_weights, names=names, model=model, still_driving=still_driving,
        origin=git_tags.open_remote(repo, wanted=line.publish.push), source=source,
    )  # fmt: skip
    if job.origin is not None and not job.origin.is_mirror:
        announce(git_tags.announcement(job.origin))
    weights = _export(job)
    version, answer = _existing(job, weights), None
    if version is None:
        version, answer = _make(job, weights, workdir / "smoke", runner, python)
    tagged, events = _tag(job, version)
    return _published(job, version, answer, tagged, events)


def _program_files(store: ObjectStore, record: Record, line: Line, key: SigningKey) -> ProgramFiles | None:
    """Files that the line names instead of a checkpoint."""
    if not line.publish.files:
        return None
    return find_program_files(store, record, globs=line.publish.files, key=key.checkpoint_key(record.run.project))


def _no_weights_reason(record: Record) -> str:
    """Why a program without a checkpoint of tensors publishes nothing."""
    if any(each.kind == SAVE_KIND for each in record.artifacts):
        return "publish.files names no file; files of program.save and of project.outputs can be published"
    return (
        "the program saved no checkpoint, so there are no weights to publish; publish.files publishes files"
        " of project.outputs or of program.save"
    )


def _export(job: _Job) -> str:
    """Weights and config in a fresh folder; returns the digest of the weights."""
    shutil.rmtree(job.folder, ignore_errors=True)
    job.folder.mkdir(parents=True)
    record = job.record
    if job.source is not None:
        job.source.fetch(job.folder)
        write_config(job.folder, record, job.line, of_program=True)
        return model_files.weights_digest(model_files.list_folder(job.folder, "", of_program=True))
    metadata = {"run": record.run.id, "commit": record.commit.sha, "checkpoint": job.checkpoint}
    export_model(
        job.store, job.checkpoint, job.key.checkpoint_key(record.run.project), job.folder,
        sha256=job.manifest_sha256, metadata=metadata, names=job.names,
    )  # fmt: skip
    write_config(job.folder, record, job.line)
    return model_files.weights_digest(model_files.list_folder(job.folder, ""))


def _existing(job: _Job, weights: str) -> Version | None:
    """The version that this run has made of these weights."""
    run = job.record.run.id
    return next((v for v in list_versions(job.store, job.model) if (v.run, v.weights) == (run, weights)), None)


def _make(
    job: _Job, weights: str, workdir: Path, runner: ModuleRunner, python: Callable[[], str | None]
) -> tuple[Version, str | None]:
    """Version and smoke answer; the fresh process starts while the folder is described, nothing is claimed before."""
    if not job.line.publish.smoke or job.of_program:
        return _claim_number(job, weights, lambda: None), None
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(
            run_smoke_test, job.store, job.record, job.folder, workdir, runner, env=job.line.train.env, python=python
        )
        return _claim_number(job, weights, answer.result), answer.result()


def _claim_number(job: _Job, weights: str, approve: Callable[[], object]) -> Version:
    """Upload under the next number that neither leg has taken; another publisher may be faster, then the one after.

    `approve` is called before anything is uploaded and raises where the model may not become a version.
    """
    for _ in range(TRIES):
        taken = {0, *version_numbers(job.store, job.model), *git_tags.taken_numbers(job.repo, job.model, job.origin)}
        number = max(taken) + 1
        write_metadata(
            job.folder,
            job.record,
            job.line,
            model=job.model,
            version=number,
            checkpoint=job.checkpoint,
            key=job.key,
            of_program=job.of_program,
        )
        version = _version(job, number, weights)
        approve()
        model_files.upload_files(job.store, job.folder, version.files)
        job.still_driving()
        if write_version(job.store, version):
            return version
        standing = _existing(job, weights)
        if standing is not None:
            return standing
    raise IntegrityError(f"{job.model}: {TRIES} version numbers in a row were taken by others; run the stage again")


def _version(job: _Job, number: int, weights: str) -> Version:
    record = job.record
    prefix = f"{record.prefix}/model/{number}-{record.run.driver.token}-{secrets.token_hex(4)}"
    inputs = to_plain(record.inputs)
    return Version(
        model=job.model, version=number, run=record.run.id, project=record.run.project, commit=record.commit.sha,
        record=record.prefix, checkpoint=job.checkpoint, plan=record.plan.digest if record.plan else "",
        inputs={name: inputs[name] for name in ("line", "code", "environment", "image", "data", "seeds")},
        weights=weights, files=model_files.list_folder(job.folder, prefix, of_program=job.of_program),
        key_id=job.key.key_id,
        metrics={name: to_plain(metric) for name, metric in record.metrics.items()}, created=record.run.created,
    )  # fmt: skip


def write_version(store: ObjectStore, version: Version) -> bool:
    """Put the version's file where none is; a lost answer is settled by reading it back."""
    try:
        return store.put_if_absent(version.key, version.to_json()) is not None
    except StorageError:
        standing = store.get(version.key)
        if standing is None:
            raise
        return standing.data == version.to_json()


def _tag(job: _Job, version: Version) -> tuple[str | None, tuple[str, ...]]:
    """The git leg: the tag here, and one sentence on what could not be done now."""
    name = tag_name(version.model, version.version)
    try:
        tag = git_tags.create_tag(job.repo, version)
        refused = git_tags.push_tag(job.origin, tag) if job.origin else None
    except StorageError as error:
        return None, (f"tag {name} could not be made, promote waits for it: {error}",)
    return name, (refused,) if refused else ()


def _published(
    job: _Job, version: Version, smoke: str | None, tagged: str | None, events: tuple[str, ...]
) -> Published:
    weights = model_files.weight_files(version.files)
    size = format_bytes(sum(file.size_bytes for file in weights))
    named = weights[0].path if len(weights) == 1 else f"{len(weights)} files of weights"
    place = "in the local store" if job.store.url.startswith("file:") else f"in {job.store.url.partition('?')[0]}"
    opened = ", as the program wrote it, not opened" if version.of_program else ""
    message = f"{version.model} {version.version}: {named} {size}{opened}, signed by key {version.key_id}, {place}"
    return Published(
        model=version.model, version=version.version, key=version.key, files=version.files, key_id=version.key_id,
        weights=version.weights, smoke=smoke, tagged=tagged, events=events,
        artifacts=model_files.artifacts(version.files),
        message=message + (f" · {smoke}" if smoke else "") + ("" if tagged else " · not tagged"),
    )  # fmt: skip
