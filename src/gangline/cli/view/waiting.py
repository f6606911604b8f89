"""Something that moves while a command thinks: on stderr, on terminals only, gone when it is done."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gangline.sanitize import visible


@contextmanager
def waiting(text: str) -> Iterator[Callable[[str], None]]:
    """Show `text` behind a spinner while the block runs, or what the block says since; nothing under NO_COLOR or where
    stderr is no terminal."""
    if not sys.stderr.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb":
        yield lambda _: None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(visible(text))) as status:
        yield lambda said: status.update(Text(visible(said)))
