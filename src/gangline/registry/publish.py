"""Publication of a passed run as `models/<name>/<version>.json`: export, sign, upload, claim the number, tag.

A version exists when its file does; everything that the file names is uploaded before. A try that was killed at any
point can be repeated without a second version, because the same run with the same weights finds the existing version.
Each try has a folder of its own, so a driver that lost its lease and resumes changes no file of a version.
"""

import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gangline.checkpoint.format.export import export_model
from gangline.errors import IntegrityError, StorageError
from gangline.launch.sandbox.module_runner import ModuleRunner
from gangline.registry import git_tags, model_files
from gangline.registry.folder_signature import require_libraries
from gangline.registry.model_files import ModelFile
from gangline.registry.model_folder import write_config, write_metadata
from gangline.registry.program_files import ProgramFiles, find_program_files
from gangline.registry.publish_rules import NotPublished, check_rules, skip_reason
from gangline.registry.smoke_test import code_path, run_smoke_test
from gangline.registry.versions import (
    Version,
    check_name,
    check_owner,
    list_versions,
    require_owner,
    tag_name,
    version_numbers,
)
from gangline.sanitize import clean
from gangline.signing.keys import SigningKey
from gangline.spec.codec import to_plain
from gangline.spec.config.line import Line
from gangline.spec.globs import may_meet
from gangline.spec.measurements import Metric
from gangline.spec.plan import Plan
from gangline.spec.program_files import SAVE_KIND
from gangline.spec.record import Artifact, Record
from gangline.storage.objects.blobs import get_blob
from gangline.storage.objects.protocol import ObjectStore
from gangline.train.model.golden import GOLDEN
from gangline.units import format_bytes

MAX_TRIES = 16
_MOST_NAMED = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """A version that exists, made now or by an earlier try of the same run."""

    model: str
    version: int
    key: str
    """`models/<model>/<version>.json`."""
    files: tuple[ModelFile, ...]
    weights: str
    """Digest of the weights."""
    events: tuple[str, ...] = ()
    """Sentences for the record, e.g. on a tag that could not be pushed."""
    artifacts: tuple[Artifact, ...] = ()
    """Files of the version, for the record."""
    message: str = ""
    """The line that the user sees."""
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Metrics of the version, as its file has them."""


@dataclass(frozen=True, kw_only=True)
class _Job:
    """Arguments of one publication."""

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
    remote: git_tags.TagRemote | None
    strike: Callable[[str, Path], Mapping[str, Metric]] | None
    source: ProgramFiles | None = None
    """Files of a program; None: the checkpoint is exported."""

    @property
    def of_program(self) -> bool:
        return self.source is not None

    @property
    def manifest_sha256(self) -> str:
        """Digest of the checkpoint's manifest at the end of the training; IntegrityError where the record has none."""
        wanted = f"{self.checkpoint}/manifest.json"
        found = [
            artifact.sha256
            for artifact in self.record.artifacts
            if artifact.key == wanted and artifact.kind == "checkpoint"
        ]
        if not found:
            raise IntegrityError(f"the record of {self.record.run.id} names no checkpoint {self.checkpoint}")
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
    strike: Callable[[str, Path], Mapping[str, Metric]] | None = None,
) -> Published | NotPublished:
    """Make a version of the run's model, or find the one that an earlier try made.

    Args:
        store: Of the run.
        record: Of the run, with gates and proof.
        line: Effective line of the commit.
        key: Signs the model; its `checkpoint_key` verifies the checkpoint.
        repo: Repository of the commit; gets the tag.
        workdir: Folder for the export; a `model` folder in it is replaced.
        checkpoint: Store prefix of the step to export; None: none was saved, or the line names files to publish.
        names: Name of a tensor in the model -> its name in the version; the others keep theirs.
        still_driving: Raises once another driver has the run; called right before the version is claimed.
        announce: Receives a sentence before data goes to a git remote.
        runner: Runs the model's code for the smoke test.
        python: Interpreter of the commit's environment, asked for the smoke test of a task only; None: the driver's.
        strike: Measures model and folder as a server; raises, before anything is uploaded, where it may not be one.

    Raises:
        IntegrityError: The checkpoint is invalid or changed, another project owns the model, or the tag is taken.
        GateError: A gate or the proof says no.
        TrainingError: The smoke test failed.
        ConfigError: The libraries of `gangline[publish]` are not installed, or publish.files names nothing.
    """
    if (skipped := check_rules(record, line)) is not None:
        return skipped
    source = _program_files(store, record, line, key)
    origin = source.origin if source is not None else checkpoint
    if origin is None:
        return NotPublished(reason=_no_weights_reason(record))
    model = line.publish.model or line.project.name
    check_name("a model", model)
    require_owner(store, model, record.run.project)
    job = _Job(
        store=store, record=record, line=line, key=key, repo=repo, folder=workdir / "model", checkpoint=origin,
        names=names, model=model, still_driving=still_driving,
        remote=git_tags.open_remote(repo, wanted=line.publish.push), source=source, strike=strike,
    )  # fmt: skip
    if job.remote is not None and not job.remote.is_mirror:
        announce(git_tags.announcement(job.remote))
    weights = _export(job)
    version, answer = _existing_version(job, weights), None
    if version is None:
        version, answer = _make_version(job, weights, workdir / "smoke", runner, python)
    return _published(job, version, answer, *_tag(job, version))


def check_publication(store: ObjectStore, record: Record, line: Line) -> str:
    """A note on what the line publishes, empty if there is none; called before the training, and writes nothing.

    Raises:
        ConfigError: The libraries of `gangline[publish]` are not installed.
        IntegrityError: Another project owns the model.
    """
    files = line.publish.files
    if skip_reason(record, line) or (line.project.task is None and not files):
        return ""
    require_libraries()
    check_owner(store, line.publish.model or line.project.name, record.run.project)
    lonely = [glob for glob in files if not any(may_meet(glob, output) for output in line.project.outputs)]
    if not lonely:
        return ""
    kept = ", ".join(line.project.outputs) or "nothing"
    return (
        f"publish.files: project.outputs keeps {kept}, and so no file that matches {', '.join(lonely)}; unless"
        " program.save has it, nothing can be published"
    )


def _program_files(store: ObjectStore, record: Record, line: Line, key: SigningKey) -> ProgramFiles | None:
    """Files that the line publishes instead of a checkpoint."""
    if not line.publish.files:
        return None
    return find_program_files(store, record, globs=line.publish.files, key=key.checkpoint_key(record.run.project))


def _no_weights_reason(record: Record) -> str:
    """Why a program whose line names no files publishes nothing, and which files of it there are."""
    saves = [artifact.key.split("/")[-2] for artifact in record.artifacts if artifact.kind == SAVE_KIND]
    outputs = record.outputs.files if record.outputs else ()
    has = [f"{saves[-1]} of program.save"] if saves else []
    if record.outputs and outputs:
        count = "1 file" if record.outputs.num_files == 1 else f"{record.outputs.num_files} files"
        named = [clean(file.path, limit=80) for file in outputs[:_MOST_NAMED]]
        more = ", ..." if record.outputs.num_files > _MOST_NAMED else ""
        has.append(f"{count} of project.outputs ({', '.join(named)}{more})")
    if has:
        return f"the line has no publish.files, which would name what is published of {' and '.join(has)}"
    return (
        "no file to publish: the program saved none by program.save, and project.outputs keeps none of those that it"
        " wrote itself; publish.files names which of both are published"
    )


def _export(job: _Job) -> str:
    """Write weights and config into a fresh folder; the digest of the weights."""
    shutil.rmtree(job.folder, ignore_errors=True)
    job.folder.mkdir(parents=True)
    record = job.record
    if job.source is not None:
        job.source.fetch(job.folder)
        write_config(job.folder, record, job.line, of_program=True, path=_code_path(job))
        return model_files.weights_digest(model_files.list_folder(job.folder, "", of_program=True))
    metadata = {"run": record.run.id, "commit": record.commit.sha, "checkpoint": job.checkpoint}
    export_model(
        job.store, job.checkpoint, job.key.checkpoint_key(record.run.project), job.folder,
        sha256=job.manifest_sha256, metadata=metadata, names=job.names,
    )  # fmt: skip
    write_config(job.folder, record, job.line, path=_code_path(job))
    return model_files.weights_digest(model_files.list_folder(job.folder, ""))


def _code_path(job: _Job) -> tuple[str, ...]:
    """Folders of the code layer that a server has on its path."""
    plan = job.record.plan
    return () if plan is None else code_path(Plan.from_json(get_blob(job.store, plan.key)))


def _existing_version(job: _Job, weights: str) -> Version | None:
    """The version that this run made of these weights."""
    run = job.record.run.id
    return next((v for v in list_versions(job.store, job.model) if (v.run, v.weights) == (run, weights)), None)


def _make_version(
    job: _Job, weights: str, workdir: Path, runner: ModuleRunner, python: Callable[[], str | None]
) -> tuple[Version, str | None]:
    """(version, sentence of the smoke test); the answer of the test is signed with the version."""
    text = None
    if job.line.publish.smoke and not job.of_program:
        answer = run_smoke_test(
            job.store, job.record, job.folder, workdir, runner, env=job.line.train.env, python=python
        )
        text = answer.text
        if answer.golden is not None:
            (job.folder / GOLDEN).write_bytes(answer.golden)
    if job.strike is not None:
        measured = job.strike(job.model, job.folder)
        job = replace(job, record=replace(job.record, metrics=job.record.metrics | dict(measured)))
    return _claim_number(job, weights), text


def _claim_number(job: _Job, weights: str) -> Version:
    """Upload under the next number that is free in store and git, or a later one where another publisher is faster."""
    for _ in range(MAX_TRIES):
        taken = {0, *version_numbers(job.store, job.model), *git_tags.taken_numbers(job.repo, job.model, job.remote)}
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
        model_files.upload_files(job.store, job.folder, version.files)
        job.still_driving()
        if write_version(job.store, version):
            return version
        existing = _existing_version(job, weights)
        if existing is not None:
            return existing
    raise IntegrityError(
        f"{job.model}: {MAX_TRIES} version numbers in a row were taken by other runs; run the stage again"
    )


def _version(job: _Job, number: int, weights: str) -> Version:
    record = job.record
    prefix = f"{record.prefix}/model/{number}-{record.run.driver.token}-{secrets.token_hex(4)}"
    inputs = to_plain(record.inputs)
    return Version(
        model=job.model, version=number, run=record.run.id, project=record.run.project, commit=record.commit.sha,
        record=record.prefix, checkpoint=job.checkpoint, plan=record.plan.digest if record.plan else "",
        inputs={
            **{name: inputs[name] for name in ("line", "code", "environment", "image", "data", "seeds")},
            **({"datasets": inputs["datasets"]} if inputs["datasets"] else {}),
        },
        weights=weights, files=model_files.list_folder(job.folder, prefix, of_program=job.of_program),
        key_id=job.key.key_id,
        metrics={name: to_plain(metric) for name, metric in record.metrics.items()}, created=record.run.created,
    )  # fmt: skip


def write_version(store: ObjectStore, version: Version) -> bool:
    """Create the version's file; False where the key exists. After a lost answer the file is read back."""
    try:
        return store.put_if_absent(version.key, version.to_json()) is not None
    except StorageError:
        stored = store.get(version.key)
        if stored is None:
            raise
        return stored.data == version.to_json()


def _tag(job: _Job, version: Version) -> tuple[str | None, tuple[str, ...]]:
    """Create and push the git tag; (its name, sentences on what failed)."""
    name = tag_name(version.model, version.version)
    try:
        tag = git_tags.create_tag(job.repo, version)
        refused = git_tags.push_tag(job.remote, tag) if job.remote else None
    except StorageError as error:
        return None, (f"tag {name} could not be made, promote waits for it: {error}",)
    return name, (refused,) if refused else ()


def _published(
    job: _Job, version: Version, smoke: str | None, tagged: str | None, events: tuple[str, ...]
) -> Published:
    weights = model_files.weight_files(version.files)
    size = format_bytes(sum(file.size_bytes for file in weights))
    label = weights[0].path if len(weights) == 1 else f"{len(weights)} files of weights"
    place = "in the local store" if job.store.url.startswith("file:") else f"in {job.store.url.partition('?')[0]}"
    opened = ", as the program wrote it, not opened" if version.of_program else ""
    message = f"{version.model} {version.version}: {label} {size}{opened}, signed by key {version.key_id}, {place}"
    return Published(
        model=version.model, version=version.version, key=version.key, files=version.files, weights=version.weights,
        events=events, artifacts=model_files.artifacts(version.files), metrics=version.metrics,
        message=message + (f" · {smoke}" if smoke else "") + ("" if tagged else " · not tagged"),
    )  # fmt: skip
