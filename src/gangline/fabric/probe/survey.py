"""What listeners on all servers find: every server probes every other, or all are tested in pairs."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from gangline.errors import CapacityError, UsageError
from gangline.fabric.probe.client import TIMEOUT_SECONDS, ask
from gangline.fabric.probe.packets import MOST_TARGETS, Address, ProbeResult, read_results
from gangline.fabric.probe.pair_times import Pair

MOST_AT_ONCE = 256
"""Listeners that are asked at the same time."""
K = TypeVar("K")
T = TypeVar("T")


@dataclass(slots=True)
class Listeners:
    """The listeners of a set of servers, as one who knows their secret asks them."""

    addresses: Mapping[str, Address]
    """Address of each server, by its name."""
    secret: bytes = b""
    unreachable: dict[str, str] = field(default_factory=dict)
    """Why, by server whose listener gave no answer."""

    def probe_all(self, *, seconds: float, flows: int) -> dict[Pair, ProbeResult]:
        """Let every server probe every other for `seconds`, all at the same time.

        Raises:
            UsageError: There are fewer than two servers, or more than may probe each other.
            CapacityError: No listener answers.
        """
        names = list(self.addresses)
        if not 2 <= len(names) <= MOST_TARGETS + 1:
            raise UsageError(
                f"wanted 2 to {MOST_TARGETS + 1} servers that probe each other, found {len(names)}; --preflight tests "
                "any number in pairs"
            )
        found, self.unreachable = _answers(names, partial(self._probe, seconds=seconds, flows=flows))
        if not found:
            raise CapacityError(next(iter(self.unreachable.values())))
        return {(source, target): each for source, row in found.items() for target, each in row.items()}

    def bytes_per_second(self, pairs: Sequence[Pair], *, seconds: float) -> dict[Pair, float]:
        """Speed of one TCP connection from sender to receiver, disjoint pairs at the same time; 0 without an answer."""
        found, _ = _answers(pairs, partial(self._send, seconds=seconds))
        return {pair: found.get(pair, 0.0) for pair in pairs}

    def _probe(self, source: str, *, seconds: float, flows: int) -> dict[str, ProbeResult]:
        """What `source` finds of each other server."""
        others = [name for name in self.addresses if name != source]
        targets = [_text(self.addresses[name]) for name in others]
        request = {"do": "probe", "targets": targets, "seconds": seconds, "flows": flows}
        answer = ask(self.addresses[source], self.secret, request, timeout_seconds=2 * seconds + TIMEOUT_SECONDS)
        return dict(zip(others, read_results(answer["results"]), strict=True))

    def _send(self, pair: Pair, *, seconds: float) -> float:
        source, target = pair
        request = {"do": "send", "target": _text(self.addresses[target]), "seconds": seconds}
        answer = ask(self.addresses[source], self.secret, request, timeout_seconds=2 * seconds + TIMEOUT_SECONDS)
        return float(answer["bytes_per_second"])


def _answers(keys: Sequence[K], question: Callable[[K], T]) -> tuple[dict[K, T], dict[K, str]]:
    """Answers by key, and why there is none."""
    found: dict[K, T] = {}
    problems: dict[K, str] = {}
    with ThreadPoolExecutor(min(len(keys), MOST_AT_ONCE)) as pool:
        for key, future in [(key, pool.submit(question, key)) for key in keys]:
            try:
                found[key] = future.result()
            except CapacityError as error:
                problems[key] = str(error)
    return found, problems


def _text(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
