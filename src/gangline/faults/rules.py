"""Rules of a fault proxy: which fault, and when."""

from dataclasses import dataclass
from typing import Literal

from gangline.errors import UsageError

Direction = Literal["up", "down"]
"""`up`: from client to server; `down`: the answer."""
Action = Literal["delay", "throttle", "cut", "reset", "swallow", "answer"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultRule:
    """One fault and its trigger: exactly one of `after_bytes`, `on_request`, `probability`.

    Requests are those of HTTP/1.1 with a Content-Length, counted over all connections from 1; a connection with any
    other protocol counts as one request. A rule on requests applies `up` before any byte of the request is forwarded,
    and `down` when the answer begins, so after the server has processed the request.
    """

    action: Action
    """`delay` by `seconds`; `throttle` the connection to `bytes_per_second`; `cut`: close both ends; `reset` both ends;
    `swallow`: keep reading, forward nothing; `answer` the client with `status` and drop the rest."""
    direction: Direction = "up"
    after_bytes: int | None = None
    """Applies once, after so many bytes in `direction` on all connections."""
    on_request: int | None = None
    probability: float | None = None
    """Chance of the fault at each request."""
    seconds: float = 0.0
    bytes_per_second: float = 0.0
    status: int = 503
    retry_after_seconds: int | None = None
    """Header Retry-After of an `answer`."""

    def __post_init__(self) -> None:
        triggers = [each for each in (self.after_bytes, self.on_request, self.probability) if each is not None]
        if len(triggers) != 1:
            raise UsageError(
                f"wanted exactly one of after_bytes, on_request, probability, found {len(triggers)}: {self}"
            )
        if self.action == "delay" and self.seconds <= 0:
            raise UsageError(f"delay: wanted seconds > 0, found {self.seconds}")
        if self.action == "throttle" and self.bytes_per_second <= 0:
            raise UsageError(f"throttle: wanted bytes_per_second > 0, found {self.bytes_per_second}")


@dataclass(frozen=True, kw_only=True, slots=True)
class InjectedFault:
    """One fault that was injected."""

    rule: FaultRule
    request: int
    """Number of the affected request; for a rule on bytes, of the latest one."""
    passed_bytes: int
    """Bytes in the direction of the rule on all connections until then."""
    mono: float
