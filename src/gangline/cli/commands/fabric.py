"""`gangline fabric`: the network between servers."""

import typer

from gangline.cli.fabric_probe import probe

app = typer.Typer(rich_markup_mode=None, add_completion=False, no_args_is_help=True)


@app.callback()
def root() -> None:
    """Look at the network between servers."""


app.command()(probe)
