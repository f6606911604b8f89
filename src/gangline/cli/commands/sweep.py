"""`gangline sweep`: delete gangs that nobody needs."""

from typing import Annotated

import typer

from gangline.cli.desk import open_desk
from gangline.cli.options import HERE, JsonOption, RepoOption, SiteOption
from gangline.cli.output import columns, print_json
from gangline.line.sweep import sweep


def command(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Delete gangs whose run has ended, or that nobody has followed for long."""
    desk = open_desk(repo, site)
    swept = sweep(desk.repo, site=desk.site, environ=desk.environ, dry_run=dry_run)
    if json:
        print_json(swept)
    elif swept:
        done = "would go" if dry_run else "deleted"
        typer.echo(
            columns(
                [
                    (s.name, s.life, done if s.deleted or (dry_run and s.life in ("ended", "orphan")) else "stays")
                    for s in swept
                ]
            )
        )
    else:
        typer.echo("no gangs here")
