"""`gangline show`: one record, as a page, a line, or JSON."""

from typing import Annotated

import typer

from gangline.cli.desk import open_desk
from gangline.cli.options import HERE, JsonOption, LastRunArgument, RepoOption, SiteOption
from gangline.cli.output import print_json
from gangline.report.terminal import one_line, page


def command(
    run: LastRunArgument = None,
    *,
    oneline: Annotated[bool, typer.Option("--oneline", help="Verdict and numbers in one line.")] = False,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Show what happened to a run."""
    record = open_desk(repo, site).run(run)
    if json:
        print_json(record)
    else:
        typer.echo(one_line(record) if oneline else page(record))
