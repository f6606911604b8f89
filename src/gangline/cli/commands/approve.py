"""`gangline approve`: let the run of a fork's commit execute its code."""

import getpass
from typing import Annotated

import typer

from gangline.cli.options import HERE, JsonOption, RepoOption, RunArgument, SiteOption
from gangline.cli.output import answer
from gangline.cli.workspace import open_workspace
from gangline.line.request.trust import approve
from gangline.signing.record_seal import Sealer


def command(
    run: RunArgument,
    *,
    who: Annotated[
        str | None,
        typer.Option("--who", help="Name of the maintainer, which is written to the record.", show_default="this user"),
    ] = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Let a fork's run execute its code, after reading it: this commit only; the next push needs another approval."""
    workspace = open_workspace(repo, site)
    sealer = Sealer.of(workspace.site, workspace.environ)
    record = approve(workspace.store, workspace.run(run), who=who or getpass.getuser(), sealer=sealer)
    answer(record, f"{record.run.id} is approved by {record.run.approved}: gangline run resumes it", json=json)
