"""`gangline verify`: is this what was signed?"""

from typing import Annotated

import typer

from gangline.cli.options import HERE, JsonOption, RepoOption, SiteOption
from gangline.cli.output import columns, print_json
from gangline.cli.terminal import say, spinner
from gangline.cli.workspace import open_workspace
from gangline.errors import IntegrityError
from gangline.line.results.verification import verify


def command(
    target: Annotated[str, typer.Argument(help="MODEL/VERSION, MODEL@ALIAS, a run, a checkpoint key or a folder.")],
    *,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Check signature, digests, provenance and tag; exit 50 where one of them does not hold."""
    workspace = open_workspace(repo, site)
    with spinner("reading and checking every part"):
        checks = verify(
            target, store=workspace.store, repo=workspace.repo, site=workspace.site, environ=workspace.environ
        )
    if json:
        print_json({"target": target, "ok": all(check.ok for check in checks), "checks": checks})
    else:
        say(columns([("✓" if check.ok else "✗", check.name, check.text) for check in checks]))
    if not all(check.ok for check in checks):
        raise typer.Exit(IntegrityError.exit_code)
