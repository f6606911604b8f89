"""`gangline report`: draw a run's report from its record, here and now."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.options import HERE, JsonOption, LastRunArgument, RepoOption, SiteOption
from gangline.cli.output import print_json, write_text
from gangline.cli.terminal import say, show_in_browser
from gangline.cli.workspace import Workspace, open_workspace
from gangline.errors import StorageError, UsageError
from gangline.line.record.runs import find_run
from gangline.report.run.html import render_html
from gangline.report.run.junit import render_junit
from gangline.report.run.markdown import render_markdown
from gangline.spec.record import Record
from gangline.storage.site_paths import home

ReportFileOption = Annotated[Path | None, typer.Option("--out", "-o", help="File to write; - is stdout.")]
OpenOption = Annotated[bool, typer.Option("--open", help="Show it in the browser.")]
SUFFIXES = {"html": "html", "markdown": "md", "junit": "xml"}


def command(
    run: LastRunArgument = None,
    *,
    format_: Annotated[str, typer.Option("--format", help="Format of the report: html, markdown or junit.")] = "html",
    out: ReportFileOption = None,
    open_: OpenOption = False,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Draw the report of a run from its record and write it to a file."""
    if format_ not in SUFFIXES:
        raise UsageError(f"wanted html, markdown or junit, found --format {format_}")
    workspace = open_workspace(repo, site)
    record = workspace.run(run)
    text = _render(workspace, record, format_)
    name = f"{record.run.id}.{SUFFIXES[format_]}"
    deliver(text, out, workspace.repo, name, about={"run": record.run.id}, json=json, opens=open_)


def deliver(
    text: str, out: Path | None, repo: Path, name: str, *, about: dict[str, str], json: bool, opens: bool
) -> None:
    """Print a report, or write it and say where; `about` says in JSON what it is of."""
    if str(out) == "-":
        say(text, nl=False)
        return
    path = write_report(text, out, repo, name)
    if json:
        print_json({**about, "path": str(path.resolve()), "size_bytes": len(text.encode())})
    else:
        say(path)
    if opens:
        show_in_browser(path.resolve())


def write_report(text: str, out: Path | None, repo: Path, name: str) -> Path:
    """Write to the requested path, else next to the records, else, if that is not writable, to a temporary folder.

    Raises:
        StorageError: `out` cannot be written.
    """
    if out is not None:
        write_text(out, text)
        return out
    try:
        path = home(repo) / "reports" / name
        write_text(path, text)
    except StorageError:
        path = Path(tempfile.mkdtemp(prefix="gangline-report-")) / name
        write_text(path, text)
    return path


def _render(workspace: Workspace, record: Record, format_: str) -> str:
    if format_ == "markdown":
        return render_markdown(record)
    if format_ == "junit":
        return render_junit(record)
    return render_html(record, _base(workspace, record))


def _base(workspace: Workspace, record: Record) -> Record | None:
    """The base's record, where it still is in the store."""
    if record.commit.base is None:
        return None
    try:
        return find_run(workspace.store, record.commit.base.run)
    except UsageError:
        return None
