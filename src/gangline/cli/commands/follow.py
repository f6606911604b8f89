"""`gangline follow`: watch a run that another process drives."""

import typer

from gangline.cli.attended import attended
from gangline.cli.desk import open_desk
from gangline.cli.options import HERE, JsonOption, LastRunArgument, RepoOption, SiteOption
from gangline.cli.view.choose import choose_view
from gangline.line.watch import follow_run


def command(
    run: LastRunArgument = None, *, repo: RepoOption = HERE, site: SiteOption = None, json: JsonOption = False
) -> None:
    """Show a run as it goes on, to its end; exits with the code that the run ended with. Ctrl-C only stops watching."""
    desk = open_desk(repo, site)
    whole = desk.run(run).run.id
    with attended(choose_view(json=json), drives=False) as view:
        record = follow_run(desk.repo, whole, site=desk.site, environ=desk.environ, observer=view)
    if record.run.exit_code:
        raise typer.Exit(record.run.exit_code)
