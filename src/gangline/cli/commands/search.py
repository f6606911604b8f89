"""`gangline search`: better settings of a commit; trials are runs of its line with `--set`.

What was found is shown as a page and in Optuna's dashboard, and is written into the line.
"""

import difflib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangline.cli.budget import YesOption, budget_hours, confirm_cost, hours_text
from gangline.cli.commands.report import OpenOption, ReportFileOption, deliver
from gangline.cli.options import HERE, CommitOption, JsonOption, RepoOption, SetOption, SiteOption, TargetOption
from gangline.cli.output import print_json, terminal_width, write_text
from gangline.cli.terminal import say, show_in_browser, spinner
from gangline.cli.view.search_view import SearchScreen, answer_lines, state_line, trial_line
from gangline.cli.workspace import Workspace, open_workspace
from gangline.errors import GateError, UsageError
from gangline.git.repository import Repository
from gangline.line.request.run_request import resolve_request
from gangline.line.run.driver import RunWorkspace, open_run_workspace
from gangline.line.run.lease import HeldError, is_held, read_lease
from gangline.spec.search import SearchRequest, SearchView, Trial

if TYPE_CHECKING:
    from gangline.search.driver import SearchDriver
    from gangline.search.prepare import PreparedSearch

LOOK_SECONDS = 1.0
STOP_SECONDS = 180.0
SUFFIXES = {"html": "html", "markdown": "md", "text": "txt"}
SearchArgument = Annotated[str, typer.Argument(help="Search id, or the beginning of one.", metavar="ID")]
app = typer.Typer(
    help="Search better settings of a commit: trials are runs of its line, Optuna proposes and stops them.",
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
)


@app.callback()
def search(
    context: typer.Context,
    *,
    trials: Annotated[
        int | None, typer.Option("--trials", help="Number of trials.", show_default="search.trials")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option("--budget", help="Most that all trials may cost: 2 or 2h (of GPUs, else cores), 30EUR."),
    ] = None,
    yes: YesOption = False,
    set_: SetOption = None,
    commit: CommitOption = None,
    target: TargetOption = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Try settings of [search] in line.toml and confirm the best on fresh seeds; called again, resume the search.

    Ctrl-C leaves trials running: the same command goes on with them, `gangline search stop ID` stops them. Exit 0: the
    best is BETTER than the line as it is; 60: it is not, or the budget is spent.
    """
    if context.invoked_subcommand is not None:
        return
    from gangline.search.prepare import SearchAsk, prepare

    workspace = open_workspace(repo, site)
    here = open_run_workspace(workspace.repo, site=workspace.site, environ=workspace.environ, observer=None)
    asked = SearchAsk(
        commit=commit, overrides=tuple(set_ or ()), trials=trials, target=target,
        budget_hours=None if budget is None else budget_hours(budget, workspace.site),
    )  # fmt: skip
    with spinner("reading the search") as shows:
        prepared = prepare(here, asked, notify=shows)
    _agree(prepared, yes=yes or budget is not None)
    view = _run(here, prepared, SearchScreen(json=json), site_file=site, target=target)
    if view.answer is None or view.answer.verdict != "BETTER":
        raise typer.Exit(GateError.exit_code)


@app.command()
def show(
    search: Annotated[
        str | None, typer.Argument(help="Search id, or the beginning of one.", metavar="ID", show_default="list them")
    ] = None,
    *,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Show a search: its trials, the best one, the verdict; without ID list the searches of this project."""
    from gangline.search.searches import list_searches

    workspace = open_workspace(repo, site)
    if search is None:
        project = resolve_request(workspace.repo, commit=None, overrides=(), strategy=None).line.project.name
        requests = list_searches(workspace.store, project)
        if json:
            print_json(requests)
        else:
            for request in requests:
                say(
                    f"{request.id}  {request.created[:16]}  {', '.join(request.metrics)}"
                    f" over {', '.join(sorted(request.space))}"
                )
        return
    view = _view(workspace, search)
    if json:
        print_json(view)
    else:
        _print(view)


@app.command()
def stop(
    search: SearchArgument,
    *,
    reason: Annotated[str, typer.Option("--reason", help="One sentence for the journal.")] = "stopped by hand",
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Stop a search and its trials; returns when none of them runs. The same `gangline search` resumes it."""
    from gangline.search.searches import find_search, read_search

    workspace = open_workspace(repo, site)
    request = find_search(workspace.store, search)
    screen = SearchScreen(json=json)
    try:
        view = _driver(workspace, request, screen, site_file=site).stop(reason)
    except HeldError:
        deadline = time.monotonic() + STOP_SECONDS
        while _is_driven(workspace, request):
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_SECONDS)
        view = read_search(workspace.store, request.project, request.id)
    screen.end(view)


@app.command()
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


@app.command()
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
    from gangline.search.answer import LINE, line_change
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


@app.command()
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


def _run(
    here: RunWorkspace, prepared: "PreparedSearch", screen: SearchScreen, *, site_file: Path | None, target: str | None
) -> SearchView:
    """Drive it to its end, or watch it while another process does."""
    from gangline.search.answer import confirm
    from gangline.search.driver import SearchDriver
    from gangline.search.trials import RepositoryTrials

    request = prepared.request
    runs = RepositoryTrials(here, request, site_file=site_file, target=target)
    driver = SearchDriver(
        here.store, request, limits=prepared.limits, runs=runs, screen=screen,
        trial_hours=prepared.forecast.trial_hours, base_values=prepared.base_values,
    )  # fmt: skip
    runs.on_wait = driver.require_going
    try:
        view = driver.run(
            None if len(request.metrics) > 1 else lambda view: confirm(view, runs.train, store=here.store)
        )
    except HeldError as error:
        screen.note(str(error))
        view = _watch(here, request, screen)
    except (KeyboardInterrupt, SystemExit):
        say(
            f"\nleft: trials that run go on; the same command resumes {request.id}, gangline search stop {request.id}"
            " stops them",
            err=True,
        )
        raise
    screen.end(view)
    return view


def _watch(here: RunWorkspace, request: SearchRequest, screen: SearchScreen) -> SearchView:
    """Show a search that another process drives, until it has no driver."""
    from gangline.search.searches import read_search

    while True:
        driven = _is_driven(here, request)
        view = read_search(here.store, request.project, request.id)
        screen.show(view)
        if not driven:
            return view
        time.sleep(LOOK_SECONDS)


def _is_driven(place: Workspace | RunWorkspace, request: SearchRequest) -> bool:
    from gangline.search.searches import search_prefix

    held = read_lease(place.store, search_prefix(request.project, request.id))
    return is_held(held, now=time.time())


def _driver(
    workspace: Workspace, request: SearchRequest, screen: SearchScreen, *, site_file: Path | None
) -> "SearchDriver":
    """A driver that starts nothing new."""
    from gangline.search.driver import SearchDriver
    from gangline.search.searches import read_limits
    from gangline.search.trials import RepositoryTrials
    from gangline.spec.search import SearchLimits

    here = open_run_workspace(workspace.repo, site=workspace.site, environ=workspace.environ, observer=None)
    limits = read_limits(here.store, request) or SearchLimits(trials=1, parallel=1)
    runs = RepositoryTrials(here, request, site_file=site_file)
    return SearchDriver(here.store, request, limits=limits, runs=runs, screen=screen)


def _agree(prepared: "PreparedSearch", *, yes: bool) -> None:
    """Print what it is and costs; without a budget the user has to confirm it."""
    request, limits, forecast = prepared.request, prepared.limits, prepared.forecast
    unit = request.resource.upper()
    rungs = " ".join(f"{rung:,}" for rung in request.rungs)
    judged = f"{request.pruner} at {rungs}" if rungs else f"{request.pruner}: no trial is stopped early"
    cost = "cost not known before the first trial"
    if forecast.low_hours is not None and forecast.high_hours is not None:
        low, high = (hours_text(each, unit) for each in (forecast.low_hours, forecast.high_hours))
        cost = f"forecast {low}" if low == high else f"forecast {low} to {high}"
    limit = "" if limits.budget_hours is None else f", at most {hours_text(limits.budget_hours, unit)}"
    say(
        f"{limits.trials} trials of {request.sampler}, {judged} · {cost}{limit} · {limits.parallel} at a time"
        f" · {request.id}{'' if prepared.is_new else ', begun before'}",
        err=True,
    )
    if rungs and request.measured_by != request.metrics[0]:
        say(
            f"  {request.metrics[0]} is measured at the end alone: trials are stopped by their training loss;"
            " evaluate.every_steps changes that",
            err=True,
        )
    if prepared.is_new and not yes:
        confirm_cost()


def _print(view: SearchView) -> None:
    request = view.request
    rungs = " ".join(f"{rung:,}" for rung in request.rungs)
    how = f"{request.sampler}, {request.pruner}" + (f" at {rungs}" if rungs else "")
    say(f"{request.id}  {request.project} {request.commit[:8]}  {how}  {', '.join(request.metrics)}")
    for trial in view.trials:
        say(trial_line(view, trial))
    say(state_line(view))
    for line in answer_lines(view):
        say(line)


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
    from gangline.search.answer import proposed_change

    return render_markdown_search(view, line=proposed_change(Repository.at(workspace.repo), view))


def _chosen(view: SearchView, number: int | None) -> Trial:
    """The trial that was asked for, else the winner of a BETTER answer."""
    trials, answer, name = {trial.number: trial for trial in view.trials}, view.answer, view.request.id
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
    from gangline.search.answer import LINE, line_of

    text = target.read_text("utf-8", errors="replace") if target.is_file() else None
    if text != line_of(repository, "HEAD"):
        works = f"git commit it, or git checkout {LINE}"
        raise UsageError(f"search apply: wanted {LINE} as it is committed, found changes on disk; {works}")
    if text != line_of(repository, view.request.commit):
        commit = view.request.commit[:8]
        works = f"git checkout {commit}, or search this commit; --dry-run there shows the keys"
        raise UsageError(f"search apply: wanted {LINE} as commit {commit} has it, found another one at HEAD; {works}")
