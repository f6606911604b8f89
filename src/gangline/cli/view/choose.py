"""Which view a run gets: JSON lines when asked, a live screen on a terminal, plain lines elsewhere."""

import os
import sys
from types import TracebackType
from typing import Protocol, Self

from gangline.cli.view.jsonlines import JsonView
from gangline.cli.view.plain import PlainView
from gangline.line.observer import Observer


class View(Observer, Protocol):
    """An observer that may hold the screen, as a context manager, and remembers what it was told."""

    @property
    def run_id(self) -> str | None:
        """Id of the run, once it is known."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the ending, and with it the reason of a failure, has been shown."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


def choose_view(*, json: bool) -> View:
    """NO_COLOR, TERM=dumb or an output that is no terminal give plain lines."""
    if json:
        return JsonView()
    if os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb" or not sys.stdout.isatty():
        return PlainView()
    from gangline.cli.view.live import LiveView

    return LiveView()
