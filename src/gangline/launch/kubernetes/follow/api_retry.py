"""Retries of a call while the API server is unavailable, with notes for the person who waits."""

import time
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from typing import TypeVar

from gangline.launch.kubernetes.client.api import ApiUnavailable
from gangline.launch.protocol import GangEvent

RETRY_SECONDS = 600.0
"""Whoever follows bears an outage of any length: the gang is known to be there. Whoever begins may have the wrong
address, and ends after so long with exit 40; the same command goes on."""
PAUSE_SECONDS = 1.0

Answer = TypeVar("Answer")


def retry_while_unavailable(
    call: Callable[[], Answer], *, seconds: float = RETRY_SECONDS
) -> Generator[GangEvent, None, Answer]:
    """The answer of `call`; a note says since when there was none.

    Raises:
        Away: Not for so many seconds.
    """
    began, since, is_told = time.monotonic(), datetime.now(UTC), False
    while True:
        try:
            return call()
        except ApiUnavailable as error:
            if time.monotonic() - began >= seconds:
                raise
            if not is_told:
                is_told = True
                text = f"no answer since {since:%H:%M:%S} UTC, asking for {seconds / 60:.0f} min in all: {error}"
                yield GangEvent(kind="note", text=text)
        time.sleep(PAUSE_SECONDS)


def report_retries(asking: Generator[GangEvent, None, Answer], note: Callable[[str], object]) -> Answer:
    """The answer that `asking` comes to; `note` hears what it says meanwhile."""
    while True:
        try:
            note(next(asking).text)
        except StopIteration as done:
            answer: Answer = done.value
            return answer
