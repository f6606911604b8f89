"""Outputs of a program, as its gang's collector lists them: read within bounds, checked against the request.

The list comes from the gang and is not trusted: paths must be plain and match the globs, digests and sizes must be
those of objects in the run's own folder. Content is verified when it is read.
"""

from dataclasses import dataclass, replace
from hashlib import sha256

from gangline.errors import IntegrityError
from gangline.line.gangs.attempts import FinishedGang
from gangline.line.record.context import RunContext
from gangline.sanitize import one_line
from gangline.spec.config.grammar import SHA256
from gangline.spec.globs import any_matches
from gangline.spec.output_limits import MOST_OUTPUTS_BYTES
from gangline.spec.program_files import (
    FOLDER,
    MOST_METRICS_BYTES,
    MOST_OMITTED_LISTED,
    MOST_WRITERS,
    OUTPUTS,
    OUTPUTS_KIND,
    Outputs,
)
from gangline.spec.record import Artifact, Gate, OutputsInfo, Record
from gangline.storage.objects.paths import check_new_path
from gangline.storage.objects.protocol import ObjectStore, get_bounded, list_all
from gangline.units import format_bytes

SHOWN_FILES, SHOWN_LEFT_OUT = 32, 10
"""Most files that the record shows; the list in the store has all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectedOutputs:
    """The verified list of a gang that has ended."""

    outputs: Outputs
    artifact: Artifact
    info: OutputsInfo | None
    """None: the line asks only for a metrics file."""


def read_outputs(ctx: RunContext, finished: FinishedGang) -> CollectedOutputs | None:
    """Outputs of the last gang; None if the line asks for none. Of other seeds only the metrics file is read.

    Raises:
        IntegrityError: A gang that succeeded left no list, or an invalid one.
    """
    project = ctx.line.project
    globs = project.outputs if finished.plan.role == "train" else ()
    if not globs and project.metrics is None:
        return None
    key = f"{finished.plan.output_prefix}/{OUTPUTS}"
    blob = get_bounded(ctx.store, key, most_bytes=MOST_OUTPUTS_BYTES)
    found = None if blob is None else Outputs.from_json(blob.data)
    if blob is None or found is None or found.gang != finished.name:
        if finished.error is not None:
            ctx.record_event("train", OUTPUTS_KIND, "outputs were not collected: the gang ended before")
            return None
        raise IntegrityError(f"wanted {key} of gang {finished.name}, found {'that of another' if found else 'nothing'}")
    limits = ctx.site.limits
    check_outputs(
        found, key=key, globs=globs, most_files=limits.output_files, most_bytes=limits.output_bytes
    )  # fmt: skip
    _require_stored(ctx.store, found, key)
    artifact = Artifact(
        kind=OUTPUTS_KIND, key=key, media_type="application/json", size_bytes=len(blob.data),
        sha256=sha256(blob.data).hexdigest(),
    )  # fmt: skip
    info = _info(found, key, globs) if globs else None
    for file in found.left_out[:SHOWN_LEFT_OUT]:
        ctx.record_event("train", OUTPUTS_KIND, f"left out {one_line(file.path)}: {one_line(file.reason)}")
    return CollectedOutputs(outputs=found, artifact=artifact, info=info)


def check_outputs(outputs: Outputs, *, key: str, globs: tuple[str, ...], most_files: int, most_bytes: float) -> None:
    """Raise IntegrityError unless it is a list of files that match `globs`, within the limits. Pure."""
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
        try:
            check_new_path(file.path)
        except IntegrityError as error:
            raise IntegrityError(f"{key}: {error}") from error
        if not SHA256.fullmatch(file.sha256) or file.size_bytes < 0:
            raise IntegrityError(f"{key}: wanted the SHA-256 and size of {file.path!r}, found something else")
    if len(outputs.metrics_writers) > MOST_WRITERS:
        raise IntegrityError(f"{key}: wanted at most {MOST_WRITERS} ranks that wrote the metrics file")
    if unmatched := next((path for path in paths if not any_matches(path, globs)), None):
        raise IntegrityError(f"{key}: wanted files that project.outputs names, found {unmatched!r}")
    if outputs.metrics is not None and outputs.metrics.size_bytes > MOST_METRICS_BYTES:
        raise IntegrityError(f"{key}: wanted at most {format_bytes(MOST_METRICS_BYTES)} of metrics")


def _require_stored(store: ObjectStore, outputs: Outputs, key: str) -> None:
    """Raise IntegrityError unless the store has every file with its size; content is verified when it is read."""
    folder = f"{key.rpartition('/')[0]}/{FOLDER}/"
    wanted = (*outputs.files, *([outputs.metrics] if outputs.metrics else ()))
    found = {entry.key.removeprefix(folder): entry.size_bytes for entry in list_all(store, folder)} if wanted else {}
    for file in wanted:
        size = found.get(file.sha256)
        if size != file.size_bytes:
            actual = "nothing" if size is None else f"{size} bytes"
            key = f"{folder}{file.sha256}"
            raise IntegrityError(f"{file.path}: wanted {file.size_bytes} bytes at {key}, found {actual}")


def _info(outputs: Outputs, key: str, globs: tuple[str, ...]) -> OutputsInfo:
    unused = tuple(glob for glob in globs if not any(any_matches(file.path, [glob]) for file in outputs.files))
    left_out = tuple(replace(file, path=one_line(file.path)[:200], reason=one_line(file.reason)[:200])
                     for file in outputs.left_out if any_matches(file.path, globs))  # fmt: skip
    return OutputsInfo(
        key=key, num_files=len(outputs.files), size_bytes=sum(file.size_bytes for file in outputs.files),
        files=outputs.files[:SHOWN_FILES], left_out=left_out[:SHOWN_LEFT_OUT], num_left_out=outputs.num_left_out,
        refused=one_line(outputs.refused)[:400], unused=() if outputs.refused else unused,
    )  # fmt: skip


def judge_outputs(record: Record) -> Gate | None:
    """Gate on the outputs that the line declares: written, and stored. None if it declares none."""
    info = record.outputs
    if info is None:
        return None
    lost = [file for file in info.left_out if file.is_lost]
    if info.refused:
        return Gate(name=OUTPUTS_KIND, verdict="no", reason=info.refused)
    if lost:
        others = f" and {info.num_left_out - 1} more" if info.num_left_out > 1 else ""
        return Gate(name=OUTPUTS_KIND, verdict="no", reason=f"{lost[0].path}: {lost[0].reason}{others}; it is not kept")
    if not info.num_files:
        return Gate(
            name=OUTPUTS_KIND, verdict="no", reason=f"the program wrote nothing that {', '.join(info.unused)} names"
        )
    reason = f"{info.num_files} file{'s' if info.num_files > 1 else ''}, {format_bytes(info.size_bytes)}, by digest"
    unused = f"; no file matched {', '.join(info.unused)}" if info.unused else ""
    return Gate(name=OUTPUTS_KIND, verdict="yes", reason=reason + unused)
