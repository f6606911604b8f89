"""Views of a run: the protocol, the choice between live screen, plain lines and JSON lines, and the run under a view.

On failure, Ctrl-C or SIGTERM the view is closed, and the user reads how to resume or cancel the run.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol, Self

import typer

from gangline.cli.terminal import is_plain, say
from gangline.cli.view.jsonlines import JsonView
from gangline.cli.view.plain import PlainView
from gangline.errors import GanglineError
from gangline.line.record.observer import Observer
from gangline.line.run.sigterm import exit_on_sigterm


class RunView(Observer, Protocol):
    """An observer that may hold the screen, as a context manager, and remembers what was reported to it."""

    @property
    def run_id(self) -> str | None:
        """Id of the run, once it is known."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the end of the run, with the reason of a failure, was shown."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


def choose_view(*, json: bool) -> RunView:
    """NO_COLOR, TERM=dumb or an output that is no terminal give plain lines."""
    if json:
        return JsonView()
    if is_plain(sys.stdout):
        return PlainView()
    from gangline.cli.view.live import LiveView

    return LiveView()


@contextmanager
def attended_view(view: RunView, *, drives: bool = True) -> Iterator[RunView]:
    """Hold the screen while the block runs, with retries as notes; a failure whose reason was shown is printed once.

    Args:
        view: The screen.
        drives: Whether the run waits for a driver once this one has left, or was only watched.
    """
    from gangline.cli.log_setup import retries_as_notes  # structlog, which a command without a run never needs

    try:
        with exit_on_sigterm(), view, retries_as_notes(view.note):
            yield view
    except GanglineError as error:
        if not view.ended:
            raise
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt:
        _say_where(view, drives=drives)
        raise
    except SystemExit:
        _say_where(view, drives=drives)
        raise


def _say_where(view: RunView, *, drives: bool) -> None:
    if view.run_id:
        again = f"gangline run resumes {view.run_id}" if drives else f"gangline follow {view.run_id}"
        said = f"still running: {again} · stop it: gangline cancel {view.run_id}"
        say(said, err=True)
