"""Classification of exceptions in a rank: exit code by the error tree; a lost peer can be reported later."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gangline.errors import GanglineError, LostPeerError, OutOfMemoryError, TrainingError
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.torch_compat import NETWORK_ERRORS

_LOST = re.compile(
    r"gloo/transport|Connection closed by peer|Connection reset by peer|Broken pipe|Socket Timeout"
    r"|Timed out waiting \d+ms for (send|recv)|NCCL (error|communicator was aborted)|remote process has terminated",
    re.IGNORECASE,
)
_NO_MEMORY = re.compile(r"out of memory|can't allocate memory|not enough memory", re.IGNORECASE)


def exit_code_of(error: BaseException) -> int:
    """Exit code of a rank that ends by `error`; other exceptions of user code get that of `TrainingError`."""
    return _class_of(error).exit_code


def describe(error: BaseException) -> str:
    """One line for a report; the traceback is in the log."""
    lines = str(error).strip().splitlines() or ["no message"]
    return f"{type(error).__name__}: {lines[0][:500]}"


def _class_of(error: BaseException) -> type[GanglineError]:
    if isinstance(error, GanglineError):
        return type(error)
    if isinstance(error, NETWORK_ERRORS) or _says(error, _LOST):
        return LostPeerError
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or _says(error, _NO_MEMORY):
        return OutOfMemoryError
    return TrainingError


def _says(error: BaseException, pattern: re.Pattern[str]) -> bool:
    return isinstance(error, RuntimeError) and pattern.search(str(error)) is not None


@contextmanager
def defer_peer_loss(context: RankContext, phase: str) -> Iterator[None]:
    """Keep a step of a live replica whose update is done although a peer is lost in `phase`.

    The step is recorded; the next collective fails by the same loss, and unfinished work is repeated.
    """
    try:
        yield
    except Exception as error:
        if context.plan.recovery.mode != "live" or not is_peer_loss(error):
            raise
        context.events.emit("peer_missed", step=context.step, phase=phase, reason=describe(error))


def is_peer_loss(error: BaseException) -> bool:
    """The error means a lost peer, not a fault of this rank."""
    return exit_code_of(error) == LostPeerError.exit_code
