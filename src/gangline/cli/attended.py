"""A run with somebody watching: how it ends when the run fails, the terminal says stop, or the machine shuts down."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from gangline.cli.terminal import say
from gangline.cli.view.choose import View
from gangline.errors import SIGTERM_CODE, GanglineError


@contextmanager
def attended(view: View, *, drives: bool = True) -> Iterator[View]:
    """Hold the screen while the block runs; a failure whose reason was shown is not told twice.

    Args:
        view: The screen.
        drives: Whether the run waits for a driver once this one has left, or was only watched.
    """
    try:
        with leaving_on_sigterm(), view:
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


@contextmanager
def leaving_on_sigterm() -> Iterator[None]:
    """While the block runs, SIGTERM is a SystemExit: who leaves can say how to go on."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(_number: int, _frame: FrameType | None) -> None:
    """Leave the gang alone: who restarts the driver finds it by the run id."""
    sys.exit(SIGTERM_CODE)


def _say_where(view: View, *, drives: bool) -> None:
    if view.run_id:
        again = f"gangline run goes on with {view.run_id}" if drives else f"gangline follow {view.run_id}"
        said = f"left as it is: {again} · stop it: gangline cancel {view.run_id}"
        say(said, err=True)
