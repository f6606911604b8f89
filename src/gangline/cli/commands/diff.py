"""`gangline diff`: two records against each other."""

from typing import Annotated

import typer

from gangline.cli.desk import Desk, open_desk
from gangline.cli.options import HERE, JsonOption, RepoOption, SiteOption
from gangline.cli.output import print_json
from gangline.errors import GateError, UsageError
from gangline.line.git import Repository
from gangline.line.runs import find_run, list_runs
from gangline.report.compare import compare
from gangline.report.compare_text import render_comparison
from gangline.spec.record import Record


def command(
    a: Annotated[str, typer.Argument(help="Base: a run id, the beginning of one, or a commit such as HEAD~1.")],
    b: Annotated[str | None, typer.Argument(help="What is judged.", show_default="the newest run")] = None,
    *,
    fail_on_worse: Annotated[bool, typer.Option("--fail-on-worse", help="Exit 60 when B is worse.")] = False,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Judge run B against run A: numbers against A's bands, what changed, what to do next."""
    desk = open_desk(repo, site)
    comparison = compare(_record(desk, a), desk.run(None) if b is None else _record(desk, b))
    if json:
        print_json(comparison)
    else:
        typer.echo(render_comparison(comparison))
    if fail_on_worse and comparison.outcome == "WORSE":
        raise typer.Exit(GateError.exit_code)


def _record(desk: Desk, name: str) -> Record:
    """By run id; else the newest run of the commit of that name, undisturbed ones before drilled ones."""
    try:
        return find_run(desk.store, name)
    except UsageError as not_a_run:
        try:
            sha = Repository.at(desk.repo).commit(name)
        except UsageError:
            raise not_a_run from None
    newest = max(
        list_runs(desk.store, commit=sha), key=lambda record: (not record.drills, record.run.created), default=None
    )
    if newest is None:
        raise UsageError(f"{name} is commit {sha[:8]}, which has no run here; gangline run --commit {name} makes one")
    return newest
