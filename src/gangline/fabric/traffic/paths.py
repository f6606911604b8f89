"""Flows on the uplinks of leaves: the busiest link and what it leaves of a flow's rate, by path policy. Pure.

A collective waits for its slowest flow: its efficiency is that of the busiest link of all leaves that it crosses.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, lgamma, log, log1p

from gangline.errors import ConfigError
from gangline.fabric.traffic.multinomial import probability_of_most
from gangline.spec.config.fabric import PathPolicy

_NEGLIGIBLE = 1e-12
"""Probability that changes no printed digit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PathLoad:
    """What a path policy makes of flows."""

    busiest_flows: float
    """Expected on the busiest uplink; whole flows, whatever the connections they are split over."""
    efficiency: float
    """Expected share of its NIC that the slowest flow gets, in (0, 1]."""


def path_load(policy: PathPolicy, flows: Sequence[int], *, uplinks: int, connections: int = 1) -> PathLoad:
    """Load of flows that leave and enter leaves with `uplinks` uplinks each.

    Args:
        policy: `unknown` counts as `hash`, the worst. `pinned` gives each uplink as many flows as any other, to one:
            they are equal, so that no other way has less on the busiest.
        flows: Crossing flows of each leaf, in one direction; a ring has as many in the other.
        connections: That each flow is split over, equally.
    """
    if uplinks < 1 or connections < 1 or min(flows, default=0) < 0:
        raise ConfigError(
            f"paths want 1 uplink, 1 connection and 0 flows or more, found {uplinks}, {connections}, {list(flows)[:8]}"
        )
    most = max(flows, default=0)
    if policy == "pinned":
        return _load(-(-most // uplinks))
    if policy == "spray":
        return _load(most / uplinks)
    leaves = tuple(sorted(Counter(each for each in flows if each).items()))
    return hashed_load(tuple((count, 2 * times) for count, times in leaves), uplinks=uplinks, connections=connections)


def loads_of_policies(
    policy: PathPolicy, flows: Sequence[int], *, uplinks: int, connections: int = 1
) -> dict[PathPolicy, PathLoad]:
    """Loads by policy: the declared one, or the worst and the best of one that is not known."""
    shown: tuple[PathPolicy, ...] = ("hash", "spray") if policy == "unknown" else (policy,)
    return {each: path_load(each, flows, uplinks=uplinks, connections=connections) for each in shown}


@lru_cache(maxsize=256)
def hashed_load(flows: tuple[tuple[int, int], ...], *, uplinks: int, connections: int = 1) -> PathLoad:
    """Load of flows whose connections each pick an uplink by a hash.

    Args:
        flows: Pairs: flows, and how many independent groups of links so many cross, a leaf's up and down ones for
            instance.
    """
    busiest = efficiency = below = 0.0
    for most, probability in _distribution(flows, uplinks, connections):
        busiest += (probability - below) * most / connections
        efficiency += (probability - below) / max(1.0, most / connections)
        below = probability
    return PathLoad(busiest_flows=busiest, efficiency=efficiency)


def _distribution(flows: tuple[tuple[int, int], ...], uplinks: int, connections: int) -> Iterator[tuple[int, float]]:
    """Connections on the busiest link, and the probability of at most so many, up to 1."""
    most = max((-(-count * connections // uplinks) for count, _ in flows), default=0)
    tails = {count: _tails(count * connections, uplinks) for count, _ in flows}
    while True:
        above = [hashes * uplinks * tails[count][most] for count, hashes in flows if most < count * connections]
        if sum(above) < _NEGLIGIBLE:
            yield most, 1.0
            return
        probability = 1.0
        for count, hashes in flows:
            # loads are negatively associated: all at most m is never likelier than if they were independent
            tail = tails[count][most] if most < count * connections else 0.0
            if hashes * uplinks * log1p(-min(tail, 1 - 1e-16)) < log(_NEGLIGIBLE):
                probability = 0.0
                break
            probability *= probability_of_most(count * connections, bins=uplinks, most=most) ** hashes
        yield most, probability
        most += 1


def _tails(balls: int, bins: int) -> list[float]:
    """Probability that one of `bins` bins gets more than i of `balls` balls, for every i below `balls`."""
    if bins == 1:
        return [1.0] * balls
    chance, tail = log(1 / bins), 0.0
    tails = [0.0] * balls
    for i in range(balls, 0, -1):
        ways = lgamma(balls + 1) - lgamma(i + 1) - lgamma(balls - i + 1)
        tail += exp(ways + i * chance + (balls - i) * log1p(-1 / bins))
        tails[i - 1] = tail
    return tails


def _load(busiest: float) -> PathLoad:
    return PathLoad(busiest_flows=busiest, efficiency=1 / max(1.0, busiest))


def path_environment(policy: PathPolicy, *, connections: int) -> dict[str, str]:
    """Variables of NCCL that make ranks use a network as it was declared; none of a policy that is not known.

    Source:
        NVIDIA NCCL environment variables guide; adaptive routing is on by itself on InfiniBand, off on RoCE.
    """
    if policy == "unknown":
        return {}
    rails = {"NCCL_CROSS_NIC": "0"}
    if policy == "spray":
        return rails | {"NCCL_IB_ADAPTIVE_ROUTING": "1"}
    if connections == 1:
        return rails
    return rails | {"NCCL_IB_QPS_PER_CONNECTION": str(connections), "NCCL_IB_SPLIT_DATA_ON_QPS": "1"}
