"""`gangline sweep`: delete gangs that are needed no longer, and environments and homes that no run used for long."""

import signal
import threading
from typing import Annotated

import typer

from gangline.cli.options import HERE, AliveOption, JsonOption, RepoOption, SiteOption
from gangline.cli.output import columns, print_json
from gangline.cli.terminal import say
from gangline.cli.workspace import Workspace, open_workspace
from gangline.errors import StorageError
from gangline.launch.protocol import SweepResult
from gangline.line.run.sweep import sweep, sweep_homes, sweep_unused
from gangline.storage.site_paths import touch
from gangline.units import format_bytes


def command(
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be deleted, and delete nothing.")
    ] = False,
    every: Annotated[
        float | None, typer.Option("--every", min=1, help="Sweep once in so many seconds, until SIGTERM.")
    ] = None,
    with_outputs: Annotated[
        bool, typer.Option("--with-outputs", help="Delete folders with files that were not collected, too.")
    ] = False,
    alive: AliveOption = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Delete gangs whose run has ended or that no driver followed for long, and environments and homes unused
    for long.

    A folder into which a program wrote files that were not collected stays, and is named.
    """
    workspace = open_workspace(repo, site)
    over = threading.Event()
    if every is not None:
        signal.signal(signal.SIGTERM, lambda *_: over.set())
    while not over.is_set():
        _once(workspace, dry_run=dry_run, with_outputs=with_outputs, json=json, quiet=every is not None)
        if alive is not None:
            touch(alive)
        if every is None or over.wait(every):
            return


def _once(workspace: Workspace, *, dry_run: bool, with_outputs: bool, json: bool, quiet: bool) -> None:
    """One pass; with `quiet`, gangs that stay are not printed, and an unavailable store or cluster is no error."""
    try:
        swept = sweep(
            workspace.repo, site=workspace.site, environ=workspace.environ, dry_run=dry_run, with_outputs=with_outputs
        )
        unused = sweep_unused(workspace.repo, site=workspace.site, environ=workspace.environ, dry_run=dry_run)
        homes = sweep_homes(workspace.repo, site=workspace.site, dry_run=dry_run)
    except StorageError as error:
        if not quiet:
            raise
        say(f"not swept, tried again later: {error}", err=True)
        return
    deleted = [*(s.deleted for s in swept), *(u.deleted for u in unused), *(h.deleted for h in homes)]
    if quiet and not any(deleted):
        return
    if json:
        print_json([*swept, *unused, *homes])
        return
    rows: list[tuple[str, str, str]] = [
        (s.name, s.life, _said(s, dry_run=dry_run, with_outputs=with_outputs)) for s in swept
    ]
    rows += [
        (f"environment {u.digest[:8]}", f"{format_bytes(u.size_bytes)}, used {u.days:.0f} days ago",
         ("would go" if dry_run else "deleted") if u.is_over else "stays")
        for u in unused
    ]  # fmt: skip
    rows += [
        (
            f"home {h.name}",
            f"used {h.days:.0f} days ago",
            ("would go" if dry_run else "deleted") if h.is_over else "stays",
        )
        for h in homes
    ]
    say(columns(rows) if rows else "no gangs here")


def _said(swept: SweepResult, *, dry_run: bool, with_outputs: bool) -> str:
    if swept.deleted:
        return "deleted"
    if swept.life not in ("ended", "orphan"):
        return "stays"
    if swept.uncollected_files and not with_outputs:
        size = format_bytes(swept.uncollected_bytes)
        count = f"{swept.uncollected_files} file{'s' if swept.uncollected_files > 1 else ''}"
        return f"stays: {count}, {size}, that its program wrote, not collected; --with-outputs deletes them, too"
    return "would go" if dry_run else "stays"
