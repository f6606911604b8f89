"""`gangline search report | apply | dashboard`: what a search found as a page, in the line, in Optuna's dashboard."""

import difflib
from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.commands.report import OpenOption, ReportFileOption, deliver
from gangline.cli.options import HERE, JsonOption, RepoOption, SiteOption
from gangline.cli.output import terminal_width, write_text
from gangline.cli.terminal import say, show_in_browser
from gangline.cli.workspace import Workspace, open_workspace
from gangline.errors import GateError, UsageError
from gangline.git.repository import Repository
from gangline.spec.search import SearchView, Trial

SearchArgument = Annotated[str, typer.Argument(help="Search id, or the beginning of one.", metavar="ID")]
SUFFIXES = {"html": "html", "markdown": "md", "text": "txt"}


def report(
    search: SearchArgument,
    *,
    format_: Annotated[str, typer.Option("--format", help="Format of the report: html, markdown or text.")] = "html",
    out: ReportFileOption = None,
    open_: OpenOption = False,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Draw a search: best value over device time, trials, rungs, what matters, commands that repeat it."""
    if format_ not in SUFFIXES:
        raise UsageError(f"wanted html, markdown or text, found --format {format_}")
    workspace = open_workspace(repo, site)
    view = _view(workspace, search)
    text = _render(workspace, view, format_)
    name = f"{view.request.id}.{SUFFIXES[format_]}"
    deliver(text, out, workspace.repo, name, about={"search": view.request.id}, json=json, opens=open_)


def apply(
    search: SearchArgument,
    *,
    trial: Annotated[
        int | None,
        typer.Option("--trial", help="Number of another trial to take.", show_default="the confirmed winner"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the change, write nothing.")] = False,
    repo: RepoOption = HERE,
    site: SiteOption = None,
) -> None:
    """Write the keys of the winner into line.toml, comments kept, and show the change; committing it is yours."""
    from gangline.search.line_change import LINE, line_change
    from gangline.spec.config.load import load_line_text

    workspace = open_workspace(repo, site)
    view = _view(workspace, search)
    chosen, target = _chosen(view, trial), workspace.repo / LINE
    repository = Repository.at(workspace.repo)
    _require_searched_line(repository, target, view)
    before, after = line_change(repository, view.request, chosen.settings)
    load_line_text(after, file=LINE)
    for line in difflib.unified_diff(before.splitlines(), after.splitlines(), LINE, LINE, n=1, lineterm=""):
        say(line)
    for override in view.request.overrides:
        say(f"note  trials also had --set {override}, which is not written", err=True)
    if not dry_run and before != after:
        write_text(target, after)
        say(f'next  git commit -m "Settings of {view.request.id}" {LINE} && gangline run', err=True)


def dashboard(
    search: SearchArgument,
    *,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on this machine; 0: any free one.")] = 0,
    open_: OpenOption = False,
    repo: RepoOption = HERE,
    site: SiteOption = None,
) -> None:
    """Show the search in optuna-dashboard, on this machine alone and without changing it; Ctrl-C ends it."""
    from gangline.search.dashboard import serve_dashboard
    from gangline.search.searches import find_search

    workspace = open_workspace(repo, site)
    request = find_search(workspace.store, search)

    def started(url: str) -> None:
        say(url)
        if open_:
            show_in_browser(url)

    serve_dashboard(workspace.store, request, port=port, on_start=started)


def _view(workspace: Workspace, search: str) -> SearchView:
    from gangline.search.searches import find_search, read_search

    request = find_search(workspace.store, search)
    return read_search(workspace.store, request.project, request.id)


def _render(workspace: Workspace, view: SearchView, format_: str) -> str:
    if format_ == "html":
        from gangline.report.search.pages import render_html_search

        return render_html_search(view)
    if format_ == "text":
        from gangline.report.search.text import render_search

        return render_search(view, width=terminal_width())
    from gangline.report.search.pages import render_markdown_search
    from gangline.search.line_change import proposed_change

    return render_markdown_search(view, line=proposed_change(Repository.at(workspace.repo), view))


def _chosen(view: SearchView, number: int | None) -> Trial:
    """The trial that was asked for, else the winner of a BETTER answer."""
    trials, answer, name = {each.number: each for each in view.trials}, view.answer, view.request.id
    if number is not None:
        if number not in trials:
            raise UsageError(
                f"--trial: wanted a trial of {name}, found {number}; gangline search show {name} lists them"
            )
        return trials[number]
    if answer is None or answer.verdict != "BETTER":
        found = "no answer yet" if answer is None else f"{answer.verdict}: {answer.reason}"
        best = "" if view.best is None else f"; --trial {view.best} writes the best one all the same"
        raise GateError(f"search apply: wanted a search that found better settings, found {found}{best}")
    return trials[answer.trial]


def _require_searched_line(repository: Repository, target: Path, view: SearchView) -> None:
    """Raise UsageError unless line.toml is committed, and the one that was searched."""
    from gangline.search.line_change import LINE, line_of

    text = target.read_text("utf-8", errors="replace") if target.is_file() else None
    if text != line_of(repository, "HEAD"):
        works = f"git commit it, or git checkout {LINE}"
        raise UsageError(f"search apply: wanted {LINE} as it is committed, found changes on disk; {works}")
    if text != line_of(repository, view.request.commit):
        commit = view.request.commit[:8]
        works = f"git checkout {commit}, or search this commit; --dry-run there shows the keys"
        raise UsageError(f"search apply: wanted {LINE} as commit {commit} has it, found another one at HEAD; {works}")
