"""`gangline search`: better settings of a commit; trials are runs of its line with `--set`."""

from typing import Annotated

import typer

from gangline.cli.commands import search_pages
from gangline.cli.options import HERE, JsonOption, RepoOption, SiteOption
from gangline.cli.output import print_json
from gangline.cli.terminal import say
from gangline.cli.view.search_view import answer_lines, state_line, trial_line
from gangline.cli.workspace import open_workspace
from gangline.line.request.run_request import resolve_request
from gangline.spec.search import SearchView

app = typer.Typer(
    help="Search better settings of a commit: trials are runs of its line, Optuna proposes and stops them.",
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
)
app.command()(search_pages.report)
app.command()(search_pages.apply)
app.command()(search_pages.dashboard)
SearchArgument = Annotated[str, typer.Argument(help="Search id, or the beginning of one.", metavar="ID")]


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
    from gangline.search.searches import find_search, list_searches, read_search

    workspace = open_workspace(repo, site)
    if search is None:
        project = resolve_request(workspace.repo, commit=None, overrides=(), strategy=None).line.project.name
        requests = list_searches(workspace.store, project)
        if json:
            print_json(requests)
        else:
            for each in requests:
                say(f"{each.id}  {each.created[:16]}  {', '.join(each.metrics)} over {', '.join(sorted(each.space))}")
        return
    request = find_search(workspace.store, search)
    view = read_search(workspace.store, request.project, request.id)
    if json:
        print_json(view)
    else:
        _print(view)


def _print(view: SearchView) -> None:
    request = view.request
    rungs = " ".join(f"{each:,}" for each in request.rungs)
    how = f"{request.sampler}, {request.pruner}" + (f" at {rungs}" if rungs else "")
    say(f"{request.id}  {request.project} {request.commit[:8]}  {how}  {', '.join(request.metrics)}")
    for trial in view.trials:
        say(trial_line(view, trial))
    say(state_line(view))
    for line in answer_lines(view):
        say(line)
