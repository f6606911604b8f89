"""Deadline and retries of HTTP requests, and the errors that say what became of a request without an answer.

RequestFailed
├── TlsFailed             no encrypted connection came about; another try does not help
└── NoAnswer              another try may be answered
    ├── NotCarriedOut     nothing was sent, or the server says that it did nothing: any request may be sent again
    └── OutcomeUnknown    it was sent: one that is not idempotent must look first
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TypeVar

import stamina

Result = TypeVar("Result")


class RequestFailed(Exception):
    """A request without a usable answer; the text says why, in one line."""


class TlsFailed(RequestFailed):
    """No encrypted connection came about: the certificate, or the settings of one side, are wrong."""


class NoAnswer(RequestFailed):
    """No answer, or one that asks for another try."""

    def __init__(self, reason: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_seconds = retry_after_seconds


class NotCarriedOut(NoAnswer):
    """No connection came about, or the server answered that it did nothing (429, 503)."""


class OutcomeUnknown(NoAnswer):
    """The request was sent, and whether the server carried it out is not known."""


class ReadTimeout(OutcomeUnknown):
    """The server sent nothing for longer than the limit."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """End of a call, all its tries and waits together."""

    seconds: float
    """Seconds from `began` to the end; infinite if there is none."""
    began: float = field(default_factory=time.monotonic)

    def left_seconds(self) -> float:
        """Time until the end; not below 0."""
        return max(self.began + self.seconds - time.monotonic(), 0.0)

    def elapsed_seconds(self) -> float:
        """Time since the call began."""
        return time.monotonic() - self.began


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """Waits between tries: exponential, with jitter."""

    initial_seconds: float = 0.1
    max_seconds: float = 5.0
    jitter_seconds: float = 0.2
    attempts: int | None = None
    """Most tries; None: as many as the deadline allows."""


def retry(
    attempt: Callable[[], Result],
    *,
    deadline: Deadline,
    policy: RetryPolicy = RetryPolicy(),
    is_retried: Callable[[NoAnswer], bool] = lambda _: True,
) -> Result:
    """Call `attempt` until it returns; a server that names a time (`Retry-After`) is not asked before.

    Args:
        attempt: One request. What it raises besides NoAnswer ends the call.
        deadline: No try begins after it, and none is waited for that would.
        policy: How long to wait, and how often to try.
        is_retried: Whether this failure is worth another try.

    Raises:
        NoAnswer: That of the last try.
    """

    def wait(error: Exception) -> bool | float:
        if not isinstance(error, NoAnswer) or not is_retried(error):
            return False
        seconds = error.retry_after_seconds
        if seconds is None:
            return True
        return seconds if seconds < deadline.left_seconds() else False

    caller = stamina.RetryingCaller(
        attempts=policy.attempts,
        timeout=None if deadline.seconds == inf else deadline.left_seconds(),
        wait_initial=policy.initial_seconds,
        wait_max=policy.max_seconds,
        wait_jitter=policy.jitter_seconds,
    )
    return caller(wait, attempt)


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """What `Retry-After` asks for, in seconds; None where it says nothing, or a date."""
    value = headers.get("Retry-After", "")
    return float(value) if value.isdecimal() and len(value) < 12 else None
