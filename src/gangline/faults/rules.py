"""What a fault proxy does, and when: pure data."""

from dataclasses import dataclass
from typing import Literal

from gangline.errors import UsageError

Direction = Literal["up", "down"]
"""`up`: from client to server; `down`: the answer."""
Action = Literal["delay", "throttle", "cut", "reset", "swallow", "answer"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultRule:
    """One fault and its trigger: exactly one of `after_bytes`, `on_request`, `probability`.

    Requests are those of HTTP/1.1 with a Content-Length, counted over all connections from 1; on a connection that
    speaks anything else its first byte is the one request. A rule on requests strikes `up` before any of the request is
    passed on, `down` when its answer begins, so the server has done it.
    """

    action: Action
    """`delay` by `seconds`; `throttle` the connection to `bytes_per_second`; `cut`: close both ends; `reset`: RST to
    both; `swallow`: go on reading, pass nothing on; `answer` the client with `status`, dropping what was to pass."""
    direction: Direction = "up"
    after_bytes: int | None = None
    """Strikes once, when so many bytes have passed in `direction` on all connections."""
    on_request: int | None = None
    probability: float | None = None
    """For each request."""
    seconds: float = 0.0
    bytes_per_second: float = 0.0
    status: int = 503
    retry_after_seconds: int | None = None
    """Header of an `answer`."""

    def __post_init__(self) -> None:
        triggers = [each for each in (self.after_bytes, self.on_request, self.probability) if each is not None]
        if len(triggers) != 1:
            raise UsageError(f"a fault has one of after_bytes, on_request, probability, got {len(triggers)}: {self}")
        if self.action == "delay" and self.seconds <= 0:
            raise UsageError(f"a delay has seconds > 0, got {self.seconds}")
        if self.action == "throttle" and self.bytes_per_second <= 0:
            raise UsageError(f"a throttle has bytes_per_second > 0, got {self.bytes_per_second}")


@dataclass(frozen=True, kw_only=True, slots=True)
class InjectedFault:
    """One fault that happened."""

    rule: FaultRule
    connection: int
    request: int
    """Number of the request it struck; the last begun one for a rule on bytes."""
    passed_bytes: int
    """In the rule's direction, on all connections, when it struck."""
    mono: float
