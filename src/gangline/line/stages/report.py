"""report: draws the record as HTML, markdown and JUnit, and tells its pull request. Trouble outside fails nothing."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from gangline.errors import GanglineError
from gangline.forge.pull_request_comment import publish_comment
from gangline.line.record.context import RunContext, StageResult
from gangline.report.run.html import render_html
from gangline.report.run.junit import render_junit
from gangline.report.run.markdown import render_markdown
from gangline.spec.codec import digest
from gangline.spec.record import Artifact, Record
from gangline.spec.run_flags import stage
from gangline.units import now


def report(ctx: RunContext) -> StageResult:
    """Never raises for what lies outside the record; of a run that has ended it shows the verdict."""
    drawn = _as_ended(ctx.record)
    try:
        pages = {
            "report.html": ("report", "text/html", render_html(drawn, ctx.base)),
            "report.md": ("report", "text/markdown", render_markdown(drawn)),
            "junit.xml": ("junit", "application/xml", render_junit(drawn)),
        }
        artifacts = tuple(_put(ctx, name, *page) for name, page in pages.items())
    except GanglineError as error:
        ctx.record_event("report", "trouble", f"the report could not be drawn or stored: {error}")
        return StageResult(state="skipped", message="not drawn: gangline report tries again")
    prefix = ctx.records.prefix
    commented = _comment(ctx, drawn)

    def change(record: Record) -> Record:
        links = record.links | {"report": f"{prefix}/report.html"} | commented
        return replace(record, artifacts=(*record.artifacts, *artifacts), links=links)

    return StageResult(
        message=f"{_place(ctx)}/{{{','.join(files_of(drawn, prefix))}}}",
        key=digest(ctx.record.stages),
        change=change,
    )


def _comment(ctx: RunContext, drawn: Record) -> dict[str, str]:
    """Tell the pull request; the link to what was told."""
    try:
        url = publish_comment(ctx.site, ctx.environ, drawn)
    except GanglineError as error:
        ctx.record_event("report", "forge", f"the pull request was not told: {error}")
        return {}
    return {"comment": url} if url else {}


def _place(ctx: RunContext) -> str:
    """Where a person finds the run: a path from the repository for a folder inside it, else in the store."""
    folder = Path(ctx.store.url.removeprefix("file:"))
    if not ctx.store.url.startswith("file:"):
        return f"{ctx.store.url.partition('?')[0]}/{ctx.records.prefix}"
    inside = folder.is_relative_to(ctx.repo.resolve())
    return f"{folder.relative_to(ctx.repo.resolve()) if inside else folder}/{ctx.records.prefix}"


def files_of(record: Record, prefix: str) -> list[str]:
    """What a person may want of the run whose files are below `prefix`, by the paths that they have there."""
    keys = {artifact.kind: artifact.key for artifact in record.artifacts if artifact.key.startswith(f"{prefix}/")}
    found = [keys[kind].removeprefix(f"{prefix}/") for kind in ("metrics", "model") if kind in keys]
    return ["record.json", "report.html", *found]


def _as_ended(record: Record) -> Record:
    """The record as it will stand when this stage is done: a report that says of itself that it runs helps nobody."""
    info = replace(stage(record, "report"), state="done", ended=now(), seconds=0.0, message="this page")
    return replace(record, stages=record.stages | {"report": info})


def _put(ctx: RunContext, name: str, kind: str, media_type: str, text: str) -> Artifact:
    data = text.encode()
    key = f"{ctx.records.prefix}/{name}"
    ctx.store.put(key, data)
    return Artifact(kind=kind, key=key, media_type=media_type, size_bytes=len(data), sha256=sha256(data).hexdigest())
