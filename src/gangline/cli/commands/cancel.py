"""`gangline cancel`: stop a run and everything it started."""

from collections.abc import Callable
from typing import Annotated

import typer

from gangline.cli.options import HERE, JsonOption, RepoOption, RunArgument, SiteOption
from gangline.cli.output import print_json
from gangline.cli.terminal import say
from gangline.cli.workspace import open_workspace
from gangline.errors import CancelledError
from gangline.line.run.cancel import cancel_run
from gangline.report.text import clean
from gangline.spec.record import Record


def command(
    run: RunArgument,
    *,
    reason: Annotated[
        str, typer.Option("--reason", help="Reason, which is written to the record.")
    ] = "cancelled by hand",
    now: Annotated[bool, typer.Option("--now", help="Stop without an emergency checkpoint.")] = False,
    url: Annotated[
        str | None,
        typer.Option(
            "--url", help="Page of the driver that asks: a run that another page has driven since is left alone."
        ),
    ] = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Stop a run: marked in its record, its gang stopped; returns when nothing is left. Harmless when repeated."""
    workspace = open_workspace(repo, site)
    found = workspace.run(run)
    if url is not None and found.run.driver.url not in (None, url):
        say(f"{found.run.id} is left alone: {found.run.driver.url} drives it now")
        return
    stop: Callable[..., Record] = cancel_run
    if "kfp" in found.links:
        from gangline.kfp.server_runner import cancel_kfp_run as stop

    record = stop(
        workspace.repo, found.run.id, site=workspace.site, environ=workspace.environ, reason=reason, save=not now
    )
    if json:
        print_json(record)
    else:
        ended = record.run.verdict or record.run.state
        say(f"{record.run.id} {ended}: nothing of it is left running")
        if record.run.exit_code == CancelledError.exit_code:
            say(clean(record.run.reason or "no reason was given"), err=True)
            say("next: gangline run --again starts the next attempt, gangline run only repeats this", err=True)
    if record.run.exit_code == CancelledError.exit_code:
        raise typer.Exit(CancelledError.exit_code)
