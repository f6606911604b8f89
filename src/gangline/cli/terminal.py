"""What the command line prints goes through here: whatever a text repeats, nothing in it steers the terminal."""

import sys

import typer

from gangline.sanitize import visible


def say(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print on stdout, or on stderr; with a line end but where `nl` is false."""
    typer.echo(visible(str(text)), err=err, nl=nl)


def say_over(text: str = "") -> None:
    """On stderr, a terminal, in place of the line that the cursor is in."""
    sys.stderr.write(f"\r\x1b[2K{visible(text)}")
    sys.stderr.flush()
