"""Packets and results of probes. Pure: `fabric.probe.listener` sends and receives them.

A probe carries its session and number; the reply adds how many probes of the session have arrived, so that the sender
can tell what was lost on the way there from what was lost on the way back.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median, quantiles
from struct import Struct, error
from typing import Any

from gangline.errors import UsageError
from gangline.fabric.probe.links import PROBE_BYTES, LossTest

Address = tuple[str, int]
MOST_TARGETS = 64
MOST_SECONDS = 600.0
MOST_LINE_BYTES = 1 << 16
MOST_SESSIONS = 4096
"""Sessions that a listener counts at the same time; the oldest is forgotten."""
_PACKET = Struct("!4sQQI")
_PROBE, _REPLY = b"GLp1", b"GLr1"


def probe_packet(session: int, number: int) -> bytes:
    """One probe of PROBE_BYTES."""
    return _PACKET.pack(_PROBE, session, number, 0).ljust(PROBE_BYTES, b"\0")


def read_reply(data: bytes, session: int) -> tuple[int, int] | None:
    """Number of the probe, and how many of the session had arrived; None if it is no reply of this session."""
    try:
        kind, found, number, arrived = _PACKET.unpack_from(data)
    except error:
        return None
    return (number, arrived) if kind == _REPLY and found == session else None


@dataclass
class Echo:
    """What a listener remembers of the probes that reached it."""

    _arrived: OrderedDict[int, int] = field(default_factory=OrderedDict)

    def reply(self, data: bytes) -> bytes | None:
        """The reply to a probe, no longer than it; None to anything else."""
        if len(data) != PROBE_BYTES or data[:4] != _PROBE:
            return None
        _, session, number, _ = _PACKET.unpack_from(data)
        arrived = self._arrived.pop(session, 0) + 1
        self._arrived[session] = arrived
        if len(self._arrived) > MOST_SESSIONS:
            self._arrived.popitem(last=False)
        return _PACKET.pack(_REPLY, session, number, arrived).ljust(PROBE_BYTES, b"\0")


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeResult:
    """Probes of one server to another."""

    target: str
    """`host:port`."""
    sent: int
    lost: int
    """Probes lost on either way."""
    lost_there: int
    """Never reached the target, as its counts in the replies tell: what was lost after the last reply is not known."""
    lost_back: int
    """Reached it, and the reply was lost."""
    is_lossy: bool
    """Verdict of the sequential test of `fabric.probe.links`, over both ways."""
    clean_in_a_row: int
    """Probes that came back since the last loss: `links.excludes` says what they rule out."""
    decided_seconds: float | None
    """Time from the first probe to the verdict that the path is lossy."""
    median_seconds: float | None
    """Round trip; None if nothing came back."""
    p99_seconds: float | None
    flows_lossy: tuple[int, ...] = ()
    """Source ports, numbered from 0, that lost probes."""
    flows: int = 1

    @property
    def loss(self) -> float:
        """Share of the probes that did not come back."""
        return self.lost / self.sent if self.sent else 0.0


@dataclass
class ProbeLog:
    """Probes of one session while they are sent, answered and given up."""

    target: str
    flows: int
    timeout_seconds: float
    test: LossTest = field(default_factory=LossTest)
    sent: list[float] = field(default_factory=list)
    """Time of each probe, by number."""
    _round_trips: dict[int, float] = field(default_factory=dict)
    _decided: int = 0
    """Probes below this number have come back or are lost."""
    _last_reply: tuple[int, int] = (-1, 0)
    """Last probe that was replied to, and how many had arrived by then."""
    _lost: list[int] = field(default_factory=list)
    _decided_at: float | None = None

    def replied(self, number: int, arrived: int, now: float) -> None:
        """The reply to probe `number` came in, in time or too late."""
        self._last_reply = max(self._last_reply, (number, arrived))
        if self._decided <= number < len(self.sent) and now - self.sent[number] <= self.timeout_seconds:
            self._round_trips.setdefault(number, now - self.sent[number])

    def decide(self, now: float) -> None:
        """Count the probes, in their order, that came back or have waited too long."""
        while self._decided < len(self.sent):
            number = self._decided
            if number in self._round_trips:
                self.test.add_arrived()
            elif now - self.sent[number] > self.timeout_seconds:
                self._lost.append(number)
                if self.test.add_lost() and self._decided_at is None:
                    self._decided_at = now
            else:
                return
            self._decided += 1

    @property
    def is_decided(self) -> bool:
        """Every probe came back or is lost."""
        return self._decided == len(self.sent)

    def result(self) -> ProbeResult:
        """What is known now of the probes that were decided."""
        trips = sorted(self._round_trips.values())
        last, arrived = self._last_reply
        lost_by_then = sum(number <= last for number in self._lost)
        lost_there = min(lost_by_then, max(0, last + 1 - arrived))
        return ProbeResult(
            target=self.target, sent=self.test.sent, lost=len(self._lost), lost_there=lost_there,
            lost_back=lost_by_then - lost_there,
            is_lossy=self.test.is_lossy, clean_in_a_row=self.test.arrived_in_a_row,
            decided_seconds=None if self._decided_at is None else self._decided_at - self.sent[0],
            median_seconds=median(trips) if trips else None,
            p99_seconds=quantiles(trips, n=100)[-1] if len(trips) > 1 else next(iter(trips), None),
            flows_lossy=tuple(sorted({number % self.flows for number in self._lost})), flows=self.flows,
        )  # fmt: skip


def to_plain(results: Sequence[ProbeResult]) -> list[dict[str, Any]]:
    """Results as JSON carries them."""
    return [asdict(result) for result in results]


def read_results(plain: Sequence[Mapping[str, Any]]) -> tuple[ProbeResult, ...]:
    """What `to_plain` wrote."""
    return tuple(ProbeResult(**{**each, "flows_lossy": tuple(each["flows_lossy"])}) for each in plain)


def parse_address(text: str, *, port: int | None = None) -> Address:
    """`host:port`, `[::1]:port`, or a host alone if there is a usual port.

    Raises:
        UsageError: It is none of these.
    """
    host, colon, number = text.rpartition(":")
    if text.endswith("]") or not colon:
        host, number = text, "" if port is None else str(port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not number.isdecimal() or not 0 < int(number) < 65_536:
        raise UsageError(f"wanted a server as host or host:port, found {text!r}")
    return host, int(number)
