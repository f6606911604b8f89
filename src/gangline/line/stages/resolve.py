"""Stage resolve: reports the commit and line, stores the effective line, and stops older runs of the branch."""

from gangline.line.record.context import RunContext, StageResult
from gangline.line.run.cancel import supersede
from gangline.spec.codec import canonical
from gangline.spec.record import CommitInfo
from gangline.storage.objects.blobs import put_blob


def resolve(ctx: RunContext) -> StageResult:
    """Repeats the notes of the new record, whose commit, base and line are fixed; cancels superseded runs."""
    record = ctx.record
    for event in record.events:
        if event.stage == "resolve":
            ctx.observer.note(event.text)
    supersede(ctx)
    base = f"base {record.commit.base.commit[:8]}" if record.commit.base else "base none"
    rules = f" · rules of {record.commit.rules[:8]}" if record.commit.rules else ""
    return StageResult(
        message=f"{_commit(record.commit)} · line {record.run.project}{rules} · {base} · run {record.run.id}",
        key=record.run.id,
        outputs={"line": put_blob(ctx.store, canonical(ctx.line))},
    )


def _commit(commit: CommitInfo) -> str:
    state = "dirty: commit and patch, never published" if commit.patch else "clean"
    return f"{commit.sha[:8]} {state}"
