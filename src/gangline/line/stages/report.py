"""Stage report: draws the record as HTML, markdown and JUnit, and comments on its pull request."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from gangline.errors import GanglineError
from gangline.forge.pull_request_comment import publish_comment
from gangline.line.record.context import RunContext, StageResult
from gangline.line.record.runs import read_base
from gangline.line.record.store import RecordStore
from gangline.report.run.html import render_html
from gangline.report.run.junit import render_junit
from gangline.report.run.markdown import render_markdown
from gangline.signing.record_seal import Sealer
from gangline.spec.codec import digest
from gangline.spec.record import Artifact, Record
from gangline.spec.run_flags import search_of, stage
from gangline.storage.objects.protocol import ObjectStore
from gangline.units import now


def report(ctx: RunContext) -> StageResult:
    """Never raises: errors of drawing, store and forge become events of the record."""
    # the record with this stage done, so that the report does not show itself as running
    info = replace(stage(ctx.record, "report"), state="done", ended=now(), seconds=0.0, message="this page")
    drawn = replace(ctx.record, stages=ctx.record.stages | {"report": info})
    try:
        artifacts = _draw(ctx.store, drawn, ctx.base)
    except GanglineError as error:
        ctx.record_event("report", "trouble", f"the report could not be drawn or stored: {error}")
        return StageResult(state="skipped", message="not drawn: gangline report tries again")
    prefix = ctx.records.prefix
    commented = _comment(ctx, drawn)

    def change(record: Record) -> Record:
        links = record.links | {"report": f"{prefix}/report.html"} | commented
        return replace(record, artifacts=_with_pages(record, artifacts), links=links)

    return StageResult(
        message=f"{_place(ctx)}/{{{','.join(files_of(drawn, prefix))}}}",
        key=digest(ctx.record.stages),
        change=change,
    )


def redraw(store: ObjectStore, record: Record, sealer: Sealer) -> Record:
    """Draw the pages of a run again that got a result after its report stage; the record with their digests.

    A run whose report is not drawn yet is returned as it is.

    Raises:
        GanglineError: The pages could not be stored; `gangline report` draws them from the record.
    """
    if stage(record, "report").state != "done":
        return record
    artifacts = _draw(store, record, read_base(store, record, sealer))
    return RecordStore.of(store, record, sealer).change(
        lambda each: replace(each, artifacts=_with_pages(each, artifacts))
    )


def _draw(store: ObjectStore, record: Record, base: Record | None) -> tuple[Artifact, ...]:
    """Draw and store the pages of a record, which name all artifacts but themselves."""
    drawn = replace(record, artifacts=_with_pages(record, ()))
    pages = {
        "report.html": ("report", "text/html", render_html(drawn, base)),
        "report.md": ("report", "text/markdown", render_markdown(drawn)),
        "junit.xml": ("junit", "application/xml", render_junit(drawn)),
    }
    return tuple(_put(store, f"{record.prefix}/{name}", *page) for name, page in pages.items())


def _with_pages(record: Record, pages: tuple[Artifact, ...]) -> tuple[Artifact, ...]:
    """Artifacts of the record with `pages` in place of those that were drawn before."""
    return (*(artifact for artifact in record.artifacts if artifact.kind not in ("report", "junit")), *pages)


def _comment(ctx: RunContext, drawn: Record) -> dict[str, str]:
    """Comment on the pull request, unless the run is a trial; returns the link to the comment."""
    if search_of(drawn):
        return {}
    try:
        url = publish_comment(ctx.site, ctx.environ, drawn)
    except GanglineError as error:
        ctx.record_event("report", "forge", f"the comment on the pull request failed: {error}")
        return {}
    return {"comment": url} if url else {}


def _place(ctx: RunContext) -> str:
    """Place of the run for people: a path relative to the repository if the store is in it, else a URL."""
    folder = Path(ctx.store.url.removeprefix("file:"))
    if not ctx.store.url.startswith("file:"):
        return f"{ctx.store.url.partition('?')[0]}/{ctx.records.prefix}"
    inside = folder.is_relative_to(ctx.repo.resolve())
    return f"{folder.relative_to(ctx.repo.resolve()) if inside else folder}/{ctx.records.prefix}"


def files_of(record: Record, prefix: str) -> list[str]:
    """Main files of the run below `prefix`, by their relative paths."""
    keys = {artifact.kind: artifact.key for artifact in record.artifacts if artifact.key.startswith(f"{prefix}/")}
    found = [keys[kind].removeprefix(f"{prefix}/") for kind in ("metrics", "model") if kind in keys]
    return ["record.json", "report.html", *found]


def _put(store: ObjectStore, key: str, kind: str, media_type: str, text: str) -> Artifact:
    data = text.encode()
    store.put(key, data)
    return Artifact(kind=kind, key=key, media_type=media_type, size_bytes=len(data), sha256=sha256(data).hexdigest())
