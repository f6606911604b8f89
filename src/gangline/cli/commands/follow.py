"""`gangline follow`: watch a run that another process drives."""

import typer

from gangline.cli.options import HERE, JsonOption, LastRunArgument, RepoOption, SiteOption
from gangline.cli.view.run_view import attended_view, choose_view
from gangline.cli.workspace import open_workspace
from gangline.line.run.watch import follow_run


def command(
    run: LastRunArgument = None, *, repo: RepoOption = HERE, site: SiteOption = None, json: JsonOption = False
) -> None:
    """Show a run until its end; exits with the code that the run ended with. Ctrl-C only stops watching."""
    workspace = open_workspace(repo, site)
    whole = workspace.run(run).run.id
    with attended_view(choose_view(json=json), drives=False) as view:
        record = follow_run(workspace.repo, whole, site=workspace.site, environ=workspace.environ, observer=view)
    if record.run.exit_code:
        raise typer.Exit(record.run.exit_code)
