"""`gangline store`: is the object store what a line needs, and how to copy from one to another."""

import typer

from gangline.cli.desk import open_desk
from gangline.cli.options import HERE, JsonOption, RepoOption, SiteOption
from gangline.cli.output import columns, print_json
from gangline.errors import StorageError
from gangline.storage.probe import probe

app = typer.Typer(rich_markup_mode=None, add_completion=False, no_args_is_help=True)


@app.callback()
def root() -> None:
    """Look after the object store."""


@app.command()
def doctor(*, repo: RepoOption = HERE, site: SiteOption = None, json: JsonOption = False) -> None:
    """Check conditional writes, lists and reads on the store itself; exit 40 where it fails."""
    desk = open_desk(repo, site)
    found = probe(desk.store)
    if json:
        print_json({"url": desk.store.url, "conditional_writes": found.conditional_writes, "checks": found.checks})
    else:
        typer.echo(columns([("✓" if check.passed else "✗", check.name, check.reason) for check in found.checks]))
        typer.echo(
            f"{desk.store.url}: conditional writes {'yes' if found.conditional_writes else 'no: one driver alone'}"
        )
    if not found.passed:
        raise typer.Exit(StorageError.exit_code)
