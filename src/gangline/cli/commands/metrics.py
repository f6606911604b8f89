"""`gangline metrics`: the catalogue of series, and finals of runs as OpenMetrics text."""

import typer

app = typer.Typer(rich_markup_mode=None, add_completion=False, no_args_is_help=True, help="Metric series of runs.")
