"""Stage publish: makes the checkpoint a signed model version, if the rules of the line allow it."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

from gangline.errors import GateError, storage_errors
from gangline.line.gangs.podsets import commits_python
from gangline.line.gangs.runners import CodeOwner, open_runner
from gangline.line.record.context import RunContext, StageResult, unchanged
from gangline.line.request.project_claim import require_owned
from gangline.line.run.run_trackers import TRACKER
from gangline.line.stages.publish_serve import ServeSmoke, check_serve
from gangline.registry.publish_rules import NotPublished, unpublishable_reason
from gangline.spec.codec import digest
from gangline.spec.record import Record
from gangline.storage.objects.blobs import get_blob


def check_publication(ctx: RunContext) -> str:
    """A note on what the line publishes, empty if there is none; what `publish` refuses is refused before the training.

    Raises:
        IntegrityError: The project belongs to another repository, or the model to another project.
        ConfigError: A library that publishing needs is not installed.
    """
    from gangline.registry.publish import check_publication as check

    if ctx.line.publish.smoke == "serve" and unpublishable_reason(ctx.record) is None:
        check_serve(ctx)
    if unpublishable_reason(ctx.record) is None:
        require_owned(ctx.store, ctx.record, site=ctx.site, sealer=ctx.sealer, repo=ctx.repo, claimed=True)
    return check(ctx.store, ctx.record, ctx.line)


def _mirrored(ctx: RunContext, model: str, version: int) -> list[str]:
    """Sentences of trackers that mirror models; nothing that they do fails a publication."""
    if not any(table.models for table in ctx.site.track.values()):
        return []
    from gangline.line.run.run_models import mirror_models

    return list(mirror_models(ctx.store, model, version, repo=ctx.repo, site=ctx.site, environ=ctx.environ))


def publish(ctx: RunContext) -> StageResult:
    """Raises IntegrityError (50) if the project belongs to another repository or the version has other content,
    TrainingError (30) if its smoke test fails; fails with GateError (60), recorded, if the gate `serve` says no."""
    from gangline.registry.publish import publish as make_version
    from gangline.signing.keys import signing_key

    if unpublishable_reason(ctx.record) is None:
        require_owned(ctx.store, ctx.record, site=ctx.site, sealer=ctx.sealer, repo=ctx.repo, claimed=True)
    if ctx.line.publish.dataset is not None:
        from gangline.line.stages.publish_dataset import publish_dataset  # needs pyarrow

        return publish_dataset(ctx, ctx.line.publish.dataset)
    checkpoint, names = ctx.output("train", "checkpoint"), ctx.output("train", "export_names")
    with storage_errors(ctx.home), tempfile.TemporaryDirectory(prefix="publish-", dir=ctx.home) as folder:
        smoke = ServeSmoke(ctx, Path(folder) / "serve") if ctx.line.publish.smoke == "serve" else None
        try:
            made = make_version(
                store=ctx.store,
                record=ctx.record,
                line=ctx.line,
                key=signing_key(ctx.site, ctx.environ),
                repo=ctx.repo,
                workdir=Path(folder),
                checkpoint=None if checkpoint is None else str(checkpoint),
                names={} if names is None else json.loads(get_blob(ctx.store, str(names))),
                runner=open_runner(
                    CodeOwner.of(ctx.record), ctx.repo, site=ctx.site, environ=ctx.environ, store=ctx.store
                ),
                python=lambda: commits_python(ctx.record),
                still_driving=lambda: ctx.change(unchanged),
                announce=lambda sentence: ctx.record_event("publish", "registry", sentence),
                strike=smoke,
            )
        except GateError as error:
            if smoke is None or smoke.gate is None:
                raise
            return StageResult(state="failed", message=str(error), change=smoke.change, error=error)
    if isinstance(made, NotPublished):
        return StageResult(state="skipped", message=made.reason)
    for sentence in made.events:
        ctx.record_event("publish", "registry", sentence)
    for sentence in _mirrored(ctx, made.model, made.version):
        ctx.record_event("publish", TRACKER, sentence)

    if smoke is not None:
        smoke.take(made.metrics)

    def change(record: Record) -> Record:
        record = record if smoke is None else smoke.change(record)
        return replace(record, artifacts=(*record.artifacts, *made.artifacts))

    return StageResult(
        message=f"{made.message} · serve {smoke.text}" if smoke is not None else made.message,
        key=digest([made.model, made.weights]),
        outputs={"model": made.model, "version": made.version, "key": made.key},
        change=change,
    )
