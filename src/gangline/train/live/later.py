"""What a step still says and saves after its update, while a peer may be gone already."""

from collections.abc import Iterator
from contextlib import contextmanager

from gangline.errors import LostPeerError
from gangline.train.context import Context
from gangline.train.failure import describe, exit_code_of


@contextmanager
def met_later(context: Context, phase: str) -> Iterator[None]:
    """Of live replicas: a peer lost in `phase` does not cut off a step whose update is made.

    The step is written down; the next collective meets the same loss, and what this one left undone is done again.
    """
    try:
        yield
    except Exception as error:
        if context.plan.recovery.mode != "live" or not is_loss(error):
            raise
        context.events.emit("peer_missed", step=context.step, phase=phase, reason=describe(error))


def is_loss(error: BaseException) -> bool:
    """A peer is gone; nothing is wrong with this rank."""
    return exit_code_of(error) == LostPeerError.exit_code
