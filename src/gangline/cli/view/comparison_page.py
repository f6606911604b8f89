"""Two records against each other, as text, markdown, HTML or JSON."""

from pathlib import Path

import typer

from gangline.cli.output import print_json, print_or_write, terminal_width
from gangline.cli.workspace import Workspace
from gangline.errors import GateError, UsageError
from gangline.git.repository import Repository
from gangline.line.results.run_differences import read_differences
from gangline.report.comparison.compare import compare
from gangline.report.comparison.types import Comparison
from gangline.spec.record import Record

_FORMATS = ("text", "markdown", "html")


def require_format(format_: str) -> None:
    """Raise UsageError for a format that no page has."""
    if format_ not in _FORMATS:
        raise UsageError(f"wanted one of {', '.join(_FORMATS)}, found --format {format_}")


def show_comparison(
    workspace: Workspace, base: Record, this: Record, *, format_: str, out: Path | None, json: bool, fail_on_worse: bool
) -> None:
    """Print or write it; with `fail_on_worse` exit 60 unless `this` was compared and is no worse."""
    comparison = compare(base, this, read_differences(workspace.store, _repository(workspace, base, this), base, this))
    if json:
        print_json(comparison)
    else:
        print_or_write(_render(comparison, format_), out)
    if fail_on_worse:
        _demand_no_worse(comparison)


def _demand_no_worse(comparison: Comparison) -> None:
    """Exit 60 unless the runs were compared and `this` is no worse: an unknown result must not pass a build."""
    if comparison.outcome == "NOT COMPARABLE":
        raise GateError(f"--fail-on-worse: wanted BETTER or SAME, found NOT COMPARABLE: {comparison.why}")
    if comparison.outcome == "WORSE":
        raise typer.Exit(GateError.exit_code)


def _repository(workspace: Workspace, *records: Record) -> Repository | None:
    """The clone that has the commits of both; a store may be read from anywhere."""
    try:
        repository = Repository.at(workspace.repo)
    except UsageError:
        return None
    return repository if all(repository.has(record.commit.sha) for record in records) else None


def _render(comparison: Comparison, format_: str) -> str:
    if format_ == "markdown":
        from gangline.report.comparison.pages import render_markdown_comparison

        return render_markdown_comparison(comparison)
    if format_ == "html":
        from gangline.report.comparison.pages import render_html_comparison

        return render_html_comparison(comparison)
    from gangline.report.comparison.text import WIDTH, render_comparison

    return render_comparison(comparison, width=terminal_width(WIDTH)) + "\n"
