"""Stage build: the environment by digest, the code layer and the data as blobs; independent of the run."""

from dataclasses import replace
from typing import Any

from gangline.build import code_layer
from gangline.build.left_out import LeftOut
from gangline.build.own_environment import editable_packages_in, refuse_work_tree
from gangline.line.record.context import RunContext, StageResult
from gangline.line.record.states import stage_origin
from gangline.line.request.trust import data_access
from gangline.line.results.reproducibility import LEFT_OUT
from gangline.line.results.undeclared_reads import TRACKED
from gangline.line.stages.data_files import read_data
from gangline.line.stages.dataset_versions import DatasetAccess, versions_text
from gangline.line.stages.run_environment import RunEnvironment, environment_of
from gangline.line.stages.tracked_files import CommitPointers, fetch_pointers, find_pointers, num_files
from gangline.sanitize import clean
from gangline.spec.codec import canonical, digest
from gangline.spec.config.problems import printable
from gangline.spec.data_source import DataSource
from gangline.spec.record import Artifact, Record
from gangline.storage.objects.blobs import put_blob
from gangline.units import format_bytes

_MOST_LEFT_OUT = 20


def build(ctx: RunContext) -> StageResult:
    """Store environment, code and data.

    Raises:
        ConfigError: Lock, code or data is missing, code is only in the work tree, or the data is not that of the line.
        BuildError: The image of the lock could not be built; the message has the end of the log.
    """
    commit = ctx.record.commit
    pointers = find_pointers(ctx.repository, commit.tree, ctx.line, commit=commit.sha)
    layer = code_layer.pack(
        ctx.repository, commit.tree, ctx.line.project, commit=commit.sha, placed=pointers.lfs_paths
    )  # fmt: skip
    for link in layer.links[:5]:
        text = f"{printable(link)} is a link: the code layer holds a copy of what it points at"
        ctx.record_event("build", "copied", text)
    for path in layer.edited[:5]:
        text = f"submodule {printable(path)} has uncommitted changes, which this run does not have"
        ctx.record_event("build", "rules", text)
    code_key = put_blob(ctx.store, layer.data)
    code_digest = code_key.rsplit("/", 1)[1]
    environment = environment_of(ctx)
    if not ctx.record.run.launcher.has_pods and environment.own is None:  # ranks run in this interpreter's environment
        refuse_work_tree(
            layer.data, ctx.line.project, editable_packages_in(ctx.repository.work_tree), folder=layer.folder
        )
    data = _data(ctx, pointers)
    key = digest({"environment": environment.digest, "code": code_digest, "data": data.digest})
    earlier = ctx.find_cached_stage("build", key)

    def change(record: Record) -> Record:
        image = environment.image.reference if environment.image else None
        inputs = replace(
            record.inputs, environment=environment.digest, image=image, code=code_digest, data=data.digest,
            datasets=tuple(f"{each.name}@{each.version}" for each in data.sets),
        )  # fmt: skip
        artifact = Artifact(
            kind="code", key=code_key, media_type="application/zip", size_bytes=len(layer.data), sha256=code_digest
        )
        return replace(record, inputs=inputs, artifacts=(*record.artifacts, artifact, *environment.artifacts))

    return StageResult(
        state="taken" if earlier else "done",
        taken_from=stage_origin(earlier, "build") if earlier else None,
        message=f"environment {environment.digest[:8]} ({environment.source}) · code layer {code_digest[:8]}:"
        f" {layer.files} files, {format_bytes(layer.size_bytes)}"
        + (f"; {layer.left_out}" if layer.left_out.paths else "")
        + (f" · {pointers}" if pointers.pointers else "")
        + (f" · {versions_text(data.sets)}" if data.sets else "")
        + (f" · unchanged since {earlier.run.id}" if earlier else ""),
        key=key,
        outputs={
            "code": code_key,
            "data": put_blob(ctx.store, canonical(data)),
            **_outputs(ctx, environment),
            **({TRACKED: str(pointers)} if pointers.pointers else {}),
            **({LEFT_OUT: _left_out(layer.left_out)} if layer.left_out.paths else {}),
        },
        change=change,
    )


def _left_out(found: LeftOut) -> dict[str, Any]:
    """Part of the record on tracked files that ranks do not have."""
    return {"text": str(found), "paths": [clean(path, limit=200) for path in found.paths[:_MOST_LEFT_OUT]]}


def _outputs(ctx: RunContext, environment: RunEnvironment) -> dict[str, Any]:
    """Outputs for later stages: the lock, and the packages installed from it."""
    if (own := environment.own) is None:
        return environment.outputs
    return {
        **environment.outputs,
        "python": own.python,
        "packages": put_blob(ctx.store, canonical(own.manifest.packages)),
        "runtime": dict(own.manifest.added),
    }


def _data(ctx: RunContext, pointers: CommitPointers) -> DataSource:
    """Files of the line's data, and those that DVC or Git LFS track, stored by digest; shards are in the store."""
    allowed = DatasetAccess(access=data_access(ctx.record, ctx.site), site=ctx.site, trusted=lambda: ctx.sealer.trusted)
    commit = ctx.record.commit
    fetched = fetch_pointers(
        pointers, repository=ctx.repository, store=ctx.store, site=ctx.site, environ=ctx.environ,
        project=ctx.record.run.project, trust=commit.trust, spool=ctx.home / "tmp",
        notify=ctx.observer.note,
    )  # fmt: skip
    if fetched.num_fetched:
        ctx.record_event("build", "data", f"fetched {num_files(fetched.num_fetched)} that DVC or Git LFS track")
    texts, source = read_data(
        ctx.repository, commit.tree, ctx.line.data, store=ctx.store, allowed=allowed, fetched=fetched
    )  # fmt: skip
    for text in texts:
        if text.stored is None:
            put_blob(ctx.store, text.data)
    return source
