"""`gangline drill`: a fault on purpose, in a run of its own or in one that trains now."""

from typing import Annotated

import typer

from gangline.cli.options import HERE, JsonOption, RepoOption, SiteOption
from gangline.cli.output import print_json, terminal_width
from gangline.cli.terminal import say
from gangline.cli.workspace import open_workspace
from gangline.drill.catalogue import ALL
from gangline.drill.run import drill, drill_all
from gangline.errors import UsageError


def command(
    name: Annotated[str, typer.Argument(help="Drill to run: kill-rank, freeze-rank, ..., or all.")],
    *,
    run: Annotated[
        str | None, typer.Option("--run", help="A run that trains now.", show_default="one of its own")
    ] = None,
    rank: Annotated[int | None, typer.Option("--rank", min=0, help="Rank that gets the fault.")] = None,
    step: Annotated[int | None, typer.Option("--step", min=1, help="Step after which the fault is injected.")] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0, help="Duration of the fault.")] = None,
    seed: Annotated[
        int, typer.Option("--seed", help="Seed that chooses rank and step; the same seed chooses alike.")
    ] = 1,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Inject a fault, measure detection and recovery, check that nothing was lost.

    Exits 0 when the run held, 60 when it broke, 10 when the drill is refused or not injected.
    """
    workspace = open_workspace(repo, site)
    tell = (lambda _line: None) if json else say  # with --json only the document is printed
    if name == ALL:
        if run or rank is not None or step is not None or seconds is not None:
            raise UsageError("drill all takes a fresh run for each drill; --run, --rank, --step, --seconds are for one")
        done = drill_all(
            repo=workspace.repo,
            site=workspace.site,
            environ=workspace.environ,
            seed=seed,
            tell=tell,
            width=terminal_width(120),
        )
        reports, code = done.reports, done.exit_code
    else:
        report = drill(
            name, repo=workspace.repo, site=workspace.site, environ=workspace.environ,
            run=run and workspace.run(run).run.id, rank=rank, step=step, seconds=seconds, seed=seed, tell=tell,
        )  # fmt: skip
        reports, code = (report,), report.exit_code
    if json:
        found = [
            {"run": drill_report.run, "drill": drill_report.drill, "replay": drill_report.replay}
            for drill_report in reports
        ]
        print_json([*found, *done.skipped] if name == ALL else found[0])
    if code:
        raise typer.Exit(code)
