"""`gangline promote`: let an alias mean a version."""

import getpass
from typing import Annotated

import typer

from gangline.cli.options import HERE, JsonOption, RepoOption, SiteOption
from gangline.cli.output import answer
from gangline.cli.terminal import say
from gangline.cli.workspace import open_workspace
from gangline.line.record.store import read_record
from gangline.line.run.run_models import mirror_models
from gangline.registry.promote import promote
from gangline.report.text import clean


def command(
    model: Annotated[str, typer.Argument(help="Model name.")],
    version: Annotated[int, typer.Argument(help="Version number.", min=1)],
    alias: Annotated[str, typer.Argument(help="Alias, such as production.")],
    *,
    because: Annotated[str, typer.Option("--because", help="Reason, which is written into the signed alias.")],
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Verify every part of a version, then point ALIAS at it. Promoting an older version is the way back."""
    workspace = open_workspace(repo, site)
    moved = promote(
        model, version, alias, store=workspace.store, repo=workspace.repo, site=workspace.site,
        environ=workspace.environ, because=because, read_record=read_record, who=getpass.getuser(),
    )  # fmt: skip
    sentences = list(
        mirror_models(workspace.store, model, repo=workspace.repo, site=workspace.site, environ=workspace.environ)
    )
    before = f", before {moved.previous}" if moved.previous else ""
    text = f"{moved.model}@{moved.alias} is version {moved.version}{before} · signed by {moved.key_id}"
    answer(moved, text, json=json)
    for sentence in sentences:
        say(clean(sentence), err=True)
