"""`gangline diff`: two records against each other."""

from typing import Annotated

import typer

from gangline.cli.options import HERE, FormatOption, JsonOption, OutOption, RepoOption, SiteOption
from gangline.cli.view.comparison_page import require_format, show_comparison
from gangline.cli.workspace import open_workspace
from gangline.line.request.run_lookup import BASE, base_of, look_up_run


def command(
    a: Annotated[
        str,
        typer.Argument(
            help="Run to judge against: a run id or its beginning, a commit, branch or tag, base, base:RUN.",
            metavar="A",
        ),
    ] = BASE,
    b: Annotated[str | None, typer.Argument(help="Run to judge.", metavar="B", show_default="the newest run")] = None,
    *,
    fail_on_worse: Annotated[
        bool, typer.Option("--fail-on-worse", help="Exit 60 when B is worse, or not comparable.")
    ] = False,
    format_: FormatOption = "text",
    out: OutOption = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Judge run B against run A: numbers against A's bands, curves, what changed, what to do next.

    Without A it is the base that B was judged against when it ran.
    """
    require_format(format_)
    workspace = open_workspace(repo, site)
    this = workspace.run(None) if b is None else look_up_run(workspace.store, workspace.repo, b)
    base = base_of(workspace.store, this) if a == BASE else look_up_run(workspace.store, workspace.repo, a)
    show_comparison(workspace, base, this, format_=format_, out=out, json=json, fail_on_worse=fail_on_worse)
