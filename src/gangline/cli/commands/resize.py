"""`gangline resize`: more or fewer ranks for a run that trains."""

from typing import Annotated

import typer

from gangline.cli.options import HERE, JsonOption, RepoOption, SiteOption
from gangline.cli.output import answer
from gangline.cli.workspace import open_workspace
from gangline.line.gangs.resize import request_resize


def command(
    run: Annotated[str, typer.Argument(help="A run that trains now.")],
    ranks: Annotated[int, typer.Argument(min=1, help="Number of ranks that the run should have.")],
    *,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Ask an elastic run (`train.ranks = [min, max]`) for another number of ranks.

    Its ranks save together and exit; the next generation continues from there, no sample lost or taken twice, and the
    restart budget untouched. `gangline follow` shows when it has happened.
    """
    workspace = open_workspace(repo, site)
    record = workspace.run(run)
    plan = request_resize(workspace.store, record, ranks)
    text = f"{record.run.id}: {plan.world_size} ranks as {plan.name}, asked for; gangline follow {record.run.id}"
    answer({"run": record.run.id, "ranks": plan.world_size, "plan": plan.name}, text, json=json)
