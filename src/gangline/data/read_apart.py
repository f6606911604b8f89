"""Files that others wrote are read in a process of their own, which may take so much memory and time and no more.

Parsers expand what a file claims: one of 12 KB may hold 400 MB. A process that needs more than it may, or that ends by
itself, is an error that names the file; its caller lives on.
"""

import resource
import signal
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from gangline.errors import GanglineError
from gangline.spec.config.problems import refusal
from gangline.units import format_bytes

MOST_BYTES = 4 << 30
"""Memory of the process: a group of rows of a Parquet file is in it as a whole."""
MOST_SECONDS = 600.0
"""Time between two pieces: a shard takes seconds."""

T = TypeVar("T")


def pieces_apart(read: Callable[[Path, str], Iterator[T]], path: Path, place: str) -> Iterator[T]:
    """What `read` yields of the file at `path`, read in a process of its own.

    Args:
        read: Function of a module, called with `path` and `place`.
        path: The file.
        place: Name of the file in messages.

    Raises:
        GanglineError: What `read` raised.
        ConfigError: It needs more memory or time than it may, or its process ended by itself.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload(["__main__", read.__module__])
    pieces, answer = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(answer, MOST_BYTES, read, path, place), daemon=True)
    process.start()
    answer.close()
    try:
        while pieces.poll(MOST_SECONDS):
            piece, error = pieces.recv()
            if error is not None:
                raise error
            if piece is None:
                return
            yield piece
        raise refusal(f"{place}: wanted its next rows within {MOST_SECONDS:.0f} s, found none; write smaller files")
    except EOFError as error:
        process.join()
        raise refusal(
            f"{place}: wanted a file that can be read, found one that ends its reader ({process.exitcode})"
        ) from error
    finally:
        process.kill()
        process.join()
        pieces.close()


def _answer(
    answer: "Connection[Any, Any]", most_bytes: int, read: Callable[[Path, str], Iterator[T]], path: Path, place: str
) -> None:
    """Send (piece, None) for each that `read` yields, and at last (None, None) or (None, error)."""
    resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller kills this process
    error: GanglineError | None = None
    try:
        for piece in read(path, place):
            answer.send((piece, None))
    except MemoryError:
        error = refusal(
            f"{place}: wanted a file that is read within {format_bytes(most_bytes)} of memory, found one that needs"
            " more; write smaller groups of rows"
        )
    except GanglineError as found:
        error = found
    answer.send((None, error))
