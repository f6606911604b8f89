"""Retries of a call while the API server is unavailable, with notes for the user."""

import time
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from math import inf
from typing import TypeVar

from gangline.launch.kubernetes.client.api import ApiUnavailable
from gangline.launch.protocol import GangEvent

_RETRY_SECONDS = 600.0
"""Limit on the first call, whose address may be wrong: it ends with exit 40, and the same command continues. A gang
that is already followed is waited for without limit."""
PAUSE_SECONDS = 1.0

_Answer = TypeVar("_Answer")


def retry_while_unavailable(
    call: Callable[[], _Answer], *, seconds: float = _RETRY_SECONDS
) -> Generator[GangEvent, None, _Answer]:
    """The result of `call`; a note says since when the server gives no answer.

    Raises:
        ApiUnavailable: There was no answer for `seconds`.
    """
    began, since, is_reported = time.monotonic(), datetime.now(UTC), False
    while True:
        try:
            return call()
        except ApiUnavailable as error:
            if time.monotonic() - began >= seconds:
                raise
            if not is_reported:
                is_reported = True
                limit = "" if seconds == inf else f" for up to {seconds / 60:.0f} min"
                text = f"no answer since {since:%H:%M:%S} UTC, retrying{limit}: {error}"
                yield GangEvent(kind="note", text=text)
        time.sleep(PAUSE_SECONDS)


def report_retries(asking: Generator[GangEvent, None, _Answer], note: Callable[[str], object]) -> _Answer:
    """The result of `asking`; `note` gets the text of each event before it."""
    while True:
        try:
            note(next(asking).text)
        except StopIteration as done:
            answer: _Answer = done.value
            return answer
