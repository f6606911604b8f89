"""Output of the command line: text without control characters, and a spinner on stderr for slow commands."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import typer

from gangline.sanitize import visible


def say(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print on stdout or stderr; with a line end unless `nl` is false."""
    typer.echo(visible(str(text)), err=err, nl=nl)


def show_in_browser(page: Path | str) -> None:
    """Open a file or a URL in the user's browser, or say that none could be started."""
    import webbrowser

    if not webbrowser.open(page.as_uri() if isinstance(page, Path) else page):
        say(f"no browser could be started here; open {page} yourself", err=True)


def say_over(text: str = "") -> None:
    """Replace the cursor's line on stderr, which is a terminal."""
    sys.stderr.write(f"\r\x1b[2K{visible(text)}")
    sys.stderr.flush()


def is_plain(stream: TextIO) -> bool:
    """Whether `stream` gets plain lines: under NO_COLOR or TERM=dumb, or where it is no terminal."""
    environ = os.environ
    return bool(environ.get("NO_COLOR")) or environ.get("TERM", "dumb") == "dumb" or not stream.isatty()


@contextmanager
def spinner(text: str) -> Iterator[Callable[[str], None]]:
    """Show `text`, or what the block passes on since, behind a spinner while it runs; nothing on a plain stderr."""
    if is_plain(sys.stderr):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(visible(text))) as status:
        yield lambda said: status.update(Text(visible(said)))
