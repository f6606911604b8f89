"""`gangline run`: all stages of a commit, or the rest of them."""

import sys
from typing import Annotated

import typer

from gangline.cli.attended import attended
from gangline.cli.desk import open_desk
from gangline.cli.detach import start_driver
from gangline.cli.options import (
    HERE,
    CommitOption,
    JsonOption,
    PathArgument,
    SetOption,
    SiteOption,
    StrategyOption,
)
from gangline.cli.output import print_json
from gangline.cli.view.choose import choose_view
from gangline.line.run import run_line


def command(
    path: PathArgument = HERE,
    *,
    commit: CommitOption = None,
    set_: SetOption = None,
    strategy: StrategyOption = None,
    again: Annotated[
        bool, typer.Option("--again", help="The next attempt, even if this question is answered.")
    ] = False,
    start: Annotated[str | None, typer.Option("--from", help="First stage; earlier ones must be done.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Last stage.")] = None,
    target: Annotated[str | None, typer.Option("--target", help="Where ranks run.", show_default="the site's")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Drive it in the background and return.")] = False,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Take a commit through all stages; called again, resume where it stands.

    Ctrl-C stops a local gang with a checkpoint, a second one leaves at once; SIGTERM leaves the gang running.
    """
    desk = open_desk(path, site)
    if detach:
        _detach(json=json)
        return
    with attended(choose_view(json=json)) as view:
        run_line(
            desk.repo,
            site=desk.site,
            environ=desk.environ,
            commit=commit,
            overrides=tuple(set_ or ()),
            again=again,
            strategy=strategy,
            start=start,
            until=until,
            target=target,
            observer=view,
        )


def _detach(*, json: bool) -> None:
    """The same command once more, as it was typed, in the background."""
    typed = sys.argv[sys.argv.index("run") + 1 :]
    driver = start_driver([argument for argument in typed if argument not in ("--detach", "--json")])
    if json:
        print_json({"run": driver.run, "pid": driver.process.pid, "log": str(driver.log)})
    else:
        typer.echo(f"{driver.run} in the background: gangline follow {driver.run} · stop: gangline cancel {driver.run}")
