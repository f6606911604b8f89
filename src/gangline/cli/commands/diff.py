"""`gangline diff`: two records against each other."""

from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.options import HERE, JsonOption, RepoOption, SiteOption
from gangline.cli.output import print_json, print_or_write, terminal_width
from gangline.cli.workspace import Workspace, open_workspace
from gangline.errors import GateError, UsageError
from gangline.git.repository import Repository
from gangline.line.request.run_lookup import BASE, base_of, look_up_run
from gangline.line.results.run_differences import read_differences
from gangline.report.comparison.compare import compare
from gangline.report.comparison.types import Comparison
from gangline.spec.record import Record

_FORMATS = ("text", "markdown", "html")


def command(
    a: Annotated[
        str, typer.Argument(help="A run id or its beginning, a commit, branch or tag, base, base:RUN.", metavar="A")
    ] = BASE,
    b: Annotated[str | None, typer.Argument(help="What is judged.", metavar="B", show_default="the newest run")] = None,
    *,
    fail_on_worse: Annotated[
        bool, typer.Option("--fail-on-worse", help="Exit 60 when B is worse, or not comparable.")
    ] = False,
    format_: Annotated[str, typer.Option("--format", help="text, markdown or html.")] = "text",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write instead of stdout.")] = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Judge run B against run A: numbers against A's bands, curves, what changed, what to do next.

    Without A it is the base that B was judged against when it ran.
    """
    if format_ not in _FORMATS:
        raise UsageError(f"wanted one of {', '.join(_FORMATS)}, found --format {format_}")
    desk = open_workspace(repo, site)
    this = desk.run(None) if b is None else look_up_run(desk.store, desk.repo, b)
    base = base_of(desk.store, this) if a == BASE else look_up_run(desk.store, desk.repo, a)
    comparison = compare(base, this, read_differences(desk.store, _repository(desk, base, this), base, this))
    if json:
        print_json(comparison)
    else:
        print_or_write(_render(comparison, format_), out)
    if fail_on_worse:
        _demand_no_worse(comparison)


def _demand_no_worse(comparison: Comparison) -> None:
    """Only what was compared and is no worse goes on: a build that cannot tell must not look green."""
    if comparison.outcome == "NOT COMPARABLE":
        raise GateError(f"--fail-on-worse: wanted BETTER or SAME, found NOT COMPARABLE: {comparison.why}")
    if comparison.outcome == "WORSE":
        raise typer.Exit(GateError.exit_code)


def _repository(desk: Workspace, *records: Record) -> Repository | None:
    """The clone that has the commits of both; a store may be read from anywhere."""
    try:
        repository = Repository.at(desk.repo)
    except UsageError:
        return None
    return repository if all(repository.has(record.commit.sha) for record in records) else None


def _render(comparison: Comparison, format_: str) -> str:
    if format_ == "markdown":
        from gangline.report.comparison.markdown import render_markdown_comparison

        return render_markdown_comparison(comparison)
    if format_ == "html":
        from gangline.report.comparison.html import render_html_comparison

        return render_html_comparison(comparison)
    from gangline.report.comparison.text import WIDTH, render_comparison

    return render_comparison(comparison, width=terminal_width(WIDTH)) + "\n"
