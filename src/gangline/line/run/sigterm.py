"""SIGTERM as an ordinary end of a driver: its blocks are left in order, its gangs keep running."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gangline.errors import SIGTERM_CODE


@contextmanager
def exit_on_sigterm(first: Callable[[], None] = lambda: None) -> Iterator[None]:
    """While the block runs, SIGTERM raises SystemExit in it, once; no effect outside the main thread.

    `first` is called in the signal handler, before the block is left: a platform may kill the process a second later.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)  # a second one would interrupt the cleanup
        first()
        sys.exit(SIGTERM_CODE)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
