"""`gangline sweep`: delete gangs that nobody needs."""

import signal
import threading
from typing import Annotated

import typer

from gangline.cli.desk import Desk, open_desk
from gangline.cli.options import HERE, JsonOption, RepoOption, SiteOption
from gangline.cli.output import columns, print_json
from gangline.cli.terminal import say
from gangline.errors import StorageError
from gangline.line.sweep import sweep


def command(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    every: Annotated[
        float | None, typer.Option("--every", min=1, help="Go on, once in so many seconds, until SIGTERM.")
    ] = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Delete gangs whose run has ended, or that nobody has followed for long."""
    desk = open_desk(repo, site)
    over = threading.Event()
    if every is not None:
        signal.signal(signal.SIGTERM, lambda *_: over.set())
    while not over.is_set():
        _once(desk, dry_run=dry_run, json=json, quiet=every is not None)
        if every is None or over.wait(every):
            return


def _once(desk: Desk, *, dry_run: bool, json: bool, quiet: bool) -> None:
    """One pass; `quiet` says nothing of gangs that stay, and outlives a store or cluster that is away."""
    try:
        swept = sweep(desk.repo, site=desk.site, environ=desk.environ, dry_run=dry_run)
    except StorageError as error:
        if not quiet:
            raise
        say(f"not swept, tried again later: {error}", err=True)
        return
    if quiet and not any(each.deleted for each in swept):
        return
    if json:
        print_json(swept)
    elif swept:
        done = "would go" if dry_run else "deleted"
        say(
            columns(
                [
                    (s.name, s.life, done if s.deleted or (dry_run and s.life in ("ended", "orphan")) else "stays")
                    for s in swept
                ]
            )
        )
    else:
        say("no gangs here")
