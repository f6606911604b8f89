"""Outputs of a program, as its gang's collector lists them: read within bounds, checked against the request.

The list comes from the gang, so nothing in it is believed: paths are plain and named by the globs, digests and sizes
are those of objects in the run's own folder. Content is verified by whoever fetches it.
"""

from dataclasses import dataclass, replace
from hashlib import sha256

from gangline.errors import IntegrityError
from gangline.line.gangs.attempts import FinishedGang, role_prefix
from gangline.line.record.context import RunContext
from gangline.sanitize import one_line
from gangline.spec.config.grammar import SHA256
from gangline.spec.globs import any_matches
from gangline.spec.output_limits import MOST_OUTPUTS_BYTES
from gangline.spec.program_files import (
    FOLDER,
    MOST_METRICS_BYTES,
    MOST_OMITTED_LISTED,
    OUTPUTS,
    OUTPUTS_KIND,
    OutputFile,
    Outputs,
)
from gangline.spec.record import Artifact, Gate, OutputsInfo, Record
from gangline.storage.objects.code_layer import check_path
from gangline.storage.objects.protocol import ObjectStore, get_bounded, list_all
from gangline.units import format_bytes

SHOWN_FILES, SHOWN_LEFT_OUT = 32, 10
"""In the record; the list has all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectedOutputs:
    """The list of a gang that has ended, once it holds."""

    outputs: Outputs
    artifact: Artifact
    info: OutputsInfo | None
    """None: the line asks for a metrics file alone."""


def read_outputs(ctx: RunContext, finished: FinishedGang) -> CollectedOutputs | None:
    """What the last gang of a training left; None where the line asks for nothing. Of further seeds the metrics count.

    Raises:
        IntegrityError: A gang that ended well left no list, or one that does not hold.
    """
    project = ctx.line.project
    globs = project.outputs if finished.plan.role == "train" else ()
    if not globs and project.metrics is None:
        return None
    key = f"{role_prefix(finished.plan)}/{OUTPUTS}"
    blob = get_bounded(ctx.store, key, most_bytes=MOST_OUTPUTS_BYTES)
    found = None if blob is None else Outputs.from_json(blob.data)
    if blob is None or found is None or found.gang != finished.name:
        if finished.error is not None:
            ctx.record_event("train", OUTPUTS_KIND, "its outputs were not collected: the gang ended before it could")
            return None
        raise IntegrityError(f"wanted {key} of gang {finished.name}, found {'that of another' if found else 'nothing'}")
    limits = ctx.site.limits
    check_outputs(
        found, key=key, globs=globs, most_files=limits.output_files, most_bytes=limits.output_bytes
    )  # fmt: skip
    _demand_stored(ctx.store, found, key)
    artifact = Artifact(
        kind=OUTPUTS_KIND, key=key, media_type="application/json", size_bytes=len(blob.data),
        sha256=sha256(blob.data).hexdigest(),
    )  # fmt: skip
    info = _info(found, key, globs) if globs else None
    for each in found.left_out[:SHOWN_LEFT_OUT]:
        ctx.record_event("train", OUTPUTS_KIND, f"left out {one_line(each.path)}: {one_line(each.reason)}")
    return CollectedOutputs(outputs=found, artifact=artifact, info=info)


def check_outputs(outputs: Outputs, *, key: str, globs: tuple[str, ...], most_files: int, most_bytes: float) -> None:
    """Is it a list of what `globs` ask for, within the limits? Pure.

    Raises:
        IntegrityError: It is not.
    """
    size = sum(file.size_bytes for file in outputs.files)
    if len(outputs.files) > most_files or size > most_bytes or len(outputs.left_out) > MOST_OMITTED_LISTED:
        raise IntegrityError(
            f"{key}: wanted at most {most_files} files of {format_bytes(most_bytes)}, found {len(outputs.files)} of"
            f" {format_bytes(size)}"
        )
    paths = [file.path for file in outputs.files]
    if paths != sorted(set(paths)):
        raise IntegrityError(f"{key}: wanted each path once, in order")
    for file in (*outputs.files, *([outputs.metrics] if outputs.metrics else ())):
        _check_file(file, key)
    if stray := next((path for path in paths if not any_matches(path, globs)), None):
        raise IntegrityError(f"{key}: wanted files that project.outputs names, found {stray!r}")
    if outputs.metrics is not None and outputs.metrics.size_bytes > MOST_METRICS_BYTES:
        raise IntegrityError(f"{key}: wanted at most {format_bytes(MOST_METRICS_BYTES)} of metrics")


def _check_file(file: OutputFile, key: str) -> None:
    try:
        check_path(file.path)
    except IntegrityError as error:
        raise IntegrityError(f"{key}: {error}") from error
    if not SHA256.fullmatch(file.sha256) or file.size_bytes < 0:
        raise IntegrityError(f"{key}: wanted the SHA-256 and size of {file.path!r}, found something else")


def _demand_stored(store: ObjectStore, outputs: Outputs, key: str) -> None:
    """Every file lies in the store with its size; its content is verified by who reads it."""
    folder = f"{key.rpartition('/')[0]}/{FOLDER}/"
    wanted = (*outputs.files, *([outputs.metrics] if outputs.metrics else ()))
    found = {entry.key.removeprefix(folder): entry.size_bytes for entry in list_all(store, folder)} if wanted else {}
    for file in wanted:
        size = found.get(file.sha256)
        if size != file.size_bytes:
            there = "nothing" if size is None else f"{size} bytes"
            raise IntegrityError(f"{file.path}: wanted {file.size_bytes} bytes at {folder}{file.sha256}, found {there}")


def _info(outputs: Outputs, key: str, globs: tuple[str, ...]) -> OutputsInfo:
    unused = tuple(glob for glob in globs if not any(any_matches(file.path, [glob]) for file in outputs.files))
    told = tuple(replace(each, path=one_line(each.path)[:200], reason=one_line(each.reason)[:200])
                 for each in outputs.left_out if any_matches(each.path, globs))  # fmt: skip
    return OutputsInfo(
        key=key, num_files=len(outputs.files), size_bytes=sum(file.size_bytes for file in outputs.files),
        files=outputs.files[:SHOWN_FILES], left_out=told[:SHOWN_LEFT_OUT], num_left_out=outputs.num_left_out,
        refused=one_line(outputs.refused)[:400], unused=() if outputs.refused else unused,
    )  # fmt: skip


def judge_outputs(record: Record) -> Gate | None:
    """Was what the line declares written, and kept? None: it declares nothing."""
    info = record.outputs
    if info is None:
        return None
    lost = [each for each in info.left_out if each.is_lost]
    if info.refused:
        return Gate(name=OUTPUTS_KIND, verdict="no", reason=info.refused)
    if lost:
        others = f" and {info.num_left_out - 1} more" if info.num_left_out > 1 else ""
        return Gate(name=OUTPUTS_KIND, verdict="no", reason=f"{lost[0].path}: {lost[0].reason}{others}; it is not kept")
    if not info.num_files:
        return Gate(
            name=OUTPUTS_KIND, verdict="no", reason=f"the program wrote nothing that {', '.join(info.unused)} names"
        )
    said = f"{info.num_files} file{'s' if info.num_files > 1 else ''}, {format_bytes(info.size_bytes)}, by digest"
    unused = f"; nothing was named {', '.join(info.unused)}" if info.unused else ""
    return Gate(name=OUTPUTS_KIND, verdict="yes", reason=said + unused)
