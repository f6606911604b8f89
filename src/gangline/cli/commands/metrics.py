"""`gangline metrics`: the catalogue of series, and finals of runs as OpenMetrics text."""

from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.desk import open_desk
from gangline.cli.options import HERE, JsonOption, LastRunArgument, RepoOption, SiteOption
from gangline.cli.output import columns, print_json
from gangline.errors import ConfigError
from gangline.line.runs import list_runs
from gangline.metrics.catalogue import CATALOGUE, check_catalogue
from gangline.metrics.openmetrics import render_openmetrics

app = typer.Typer(rich_markup_mode=None, add_completion=False, no_args_is_help=True)


@app.callback()
def root() -> None:
    """Look at the metric series of runs."""


@app.command()
def check(*, json: JsonOption = False) -> None:
    """List every series with its labels; exit 10 where the catalogue breaks its own rules."""
    problems = check_catalogue()
    if json:
        print_json({"ok": not problems, "problems": problems, "series": list(CATALOGUE.values())})
    else:
        typer.echo(columns([(s.name, s.kind, ",".join(s.labels) or "-", s.help) for s in CATALOGUE.values()]))
        typer.echo("\n".join(problems) or f"{len(CATALOGUE)} series, each declared once, labels closed")
    if problems:
        raise typer.Exit(ConfigError.exit_code)


@app.command()
def export(
    run: LastRunArgument = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All runs that have ended.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write.", show_default="stdout")] = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
) -> None:
    """Write the final numbers of runs as OpenMetrics text, for promtool to take in."""
    desk = open_desk(repo, site)
    records = [r for r in list_runs(desk.store) if r.run.state == "ended"] if every else [desk.run(run)]
    text = render_openmetrics(records)
    if out is None:
        typer.echo(text, nl=False)
    else:
        out.write_text(text, "utf-8")
