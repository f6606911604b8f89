"""`gangline metrics`: the catalogue of series, and finals of runs as OpenMetrics text."""

from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.options import HERE, JsonOption, LastRunArgument, RepoOption, SiteOption, command_group
from gangline.cli.output import columns, print_json, print_or_write
from gangline.cli.terminal import say
from gangline.cli.workspace import open_workspace
from gangline.errors import ConfigError, UsageError
from gangline.line.record.runs import list_runs
from gangline.line.results.rank_metrics import rank_metric_snapshots
from gangline.metrics.catalogue import CATALOGUE, check_catalogue
from gangline.metrics.openmetrics import render_openmetrics
from gangline.metrics.promql import check_expressions, expressions_in
from gangline.metrics.record_values import price_at

app = command_group("Look at the metric series of runs.")


@app.command()
def check(
    paths: Annotated[list[Path] | None, typer.Argument(help="Rule files, boards, or folders of them.")] = None,
    *,
    json: JsonOption = False,
) -> None:
    """List every series with its labels; exit 10 where the catalogue, or a rule or board, does not hold to it."""
    found = [expression for path in paths or () for expression in _expressions(path)]
    problems = check_catalogue() + check_expressions(found)
    if json:
        print_json({"ok": not problems, "problems": problems, "series": list(CATALOGUE.values())})
    else:
        say(columns([(s.name, s.kind, ",".join(s.labels) or "-", s.help) for s in CATALOGUE.values()]))
        say("\n".join(problems) or f"{len(CATALOGUE)} series, each declared once, labels closed")
        if found and not problems:
            say(f"{len(found)} expressions, each of series that are declared or recorded")
    if problems:
        raise typer.Exit(ConfigError.exit_code)


def _expressions(path: Path) -> list[tuple[str, str]]:
    try:
        return list(expressions_in(path))
    except OSError as error:
        raise UsageError(f"wanted rules or boards at {path}, found: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"wanted rules or boards at {path}, found: {' '.join(str(error).split())}") from error


@app.command()
def export(
    run: LastRunArgument = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All runs that have ended.")] = False,
    every_seconds: Annotated[
        float | None,
        typer.Option(
            "--steps",
            metavar="SECONDS",
            help="Write what ranks reported while they trained, too, at this interval.",
            min=1,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write.", show_default="stdout")] = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
) -> None:
    """Write the numbers of runs that ended as OpenMetrics text, for promtool to take in."""
    workspace = open_workspace(repo, site)
    records = [r for r in list_runs(workspace.store) if r.run.state == "ended"] if every else [workspace.run(run)]
    snapshots = (
        [rank_metric_snapshots(workspace.store, record, every_seconds=every_seconds) for record in records]
        if every_seconds
        else []
    )
    text = render_openmetrics(records, price=price_at(workspace.site), moments=chain.from_iterable(snapshots))
    print_or_write(text, out)
