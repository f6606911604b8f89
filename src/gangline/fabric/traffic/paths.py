"""Flows on the uplinks of leaves: the busiest link and what it leaves of a flow's rate, by path policy. Pure.

A collective waits for its slowest flow: its efficiency is that of the busiest link of all leaves that it crosses.
Hashed connections fall on links at random: P(max <= m) = K!/n^K [x^K] (sum of x^i/i! for i <= m)^n for K connections
and n links. With Poisson weights in the place of 1/i! all terms are positive and at most 1, so that nothing cancels and
nothing overflows.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, fsum, lgamma, log, log1p, pi, sqrt
from operator import mul

from gangline.spec.config.fabric import PathPolicy

_NEGLIGIBLE = 1e-12
"""Probability that changes no printed digit."""

MOST_EXACT = {True: 256, False: 512}
"""Balls up to which the power is computed term by term, by whether there are 32 bins or more."""
_WINDOW = 1e-20
"""Terms below so much of the largest are dropped at the ends."""

Terms = tuple[int, list[float]]
"""Exponent of the first, and the terms of a power series from there on."""


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
    most = max(flows, default=0)
    if policy == "pinned":
        return _load(-(-most // uplinks))
    if policy == "spray":
        return _load(most / uplinks)
    leaves = tuple(sorted(Counter(flow for flow in flows if flow).items()))
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


def probability_of_most(balls: int, *, bins: int, most: int) -> float:
    """Probability that each of `bins` bins gets at most `most` of `balls` balls.

    Exact up to 512 balls, or 256 from 32 bins on. Above, the sum of the bins is taken as nearly normal, with its
    skewness and kurtosis: the expected efficiency of a path is off by at most 2e-5 from 32 bins on, and 4e-4 from 8.

    Source:
        Levin, "A representation for multinomial cumulative distribution functions", Annals of Statistics 9 (1981).
    """
    if most >= balls:
        return 1.0
    if most * bins < balls:
        return 0.0
    mean = balls / bins
    weights = [exp(i * log(mean) - mean - lgamma(i + 1)) for i in range(most + 1)]
    density = _exact_density if balls <= MOST_EXACT[bins >= 32] else _edgeworth_density
    total = exp(balls * log(balls) - balls - lgamma(balls + 1))
    return min(1.0, max(0.0, density(weights, bins, balls) / total))


def _exact_density(weights: list[float], bins: int, balls: int) -> float:
    """Term `balls` of the `bins`-th power, by repeated squaring."""
    square, product = _trimmed(0, weights), None
    while bins > 1:
        if bins % 2:
            product = square if product is None else _multiply(product, square, balls)
        bins //= 2
        if bins == 1 and product is None:
            return _term(square, square, balls)
        square = _multiply(square, square, balls)
    return _term(product or (0, [1.0]), square, balls)


def _multiply(first: Terms, second: Terms, most: int) -> Terms:
    """Product of two series up to the exponent `most`."""
    (low, long), (start, short) = sorted((first, second), key=lambda each: -len(each[1]))
    reverse, length = short[::-1], len(short)
    products = []
    for index in range(max(1, min(len(long) + length - 1, most - low - start + 1))):
        begin, end = max(0, index - length + 1), min(len(long), index + 1)
        offset = length - 1 - index
        products.append(sum(map(mul, long[begin:end], reverse[begin + offset : end + offset])))
    return _trimmed(low + start, products)


def _term(first: Terms, second: Terms, exponent: int) -> float:
    """One term of a product."""
    (low, long), (start, short) = first, second
    begin, end = max(low, exponent - start - len(short) + 1), min(low + len(long) - 1, exponent - start)
    return fsum(long[i - low] * short[exponent - start - i] for i in range(begin, end + 1))


def _trimmed(low: int, terms: list[float]) -> Terms:
    least = max(terms) * _WINDOW
    begin = next(i for i, term in enumerate(terms) if term >= least)
    end = next(i for i in range(len(terms), 0, -1) if terms[i - 1] >= least)
    return low + begin, terms[begin:end]


def _edgeworth_density(weights: list[float], bins: int, balls: int) -> float:
    """Density of a sum of `bins` counts, each by `weights`, at `balls`; with all of their mass."""
    mass = fsum(weights)
    mean = fsum(i * weight for i, weight in enumerate(weights)) / mass
    variance, third, fourth = (
        fsum((i - mean) ** power * weight for i, weight in enumerate(weights)) / mass for power in (2, 3, 4)
    )
    if variance <= 0:
        return 0.0
    spread = sqrt(bins * variance)
    skew, kurtosis = third / (variance * sqrt(variance * bins)), (fourth / variance**2 - 3) / bins
    z = (balls - bins * mean) / spread
    hermite3, hermite4 = z**3 - 3 * z, z**4 - 6 * z**2 + 3
    hermite6 = z**6 - 15 * z**4 + 45 * z**2 - 15
    series = 1 + skew / 6 * hermite3 + kurtosis / 24 * hermite4 + skew**2 / 72 * hermite6
    return exp(bins * log(mass) - z**2 / 2) / sqrt(2 * pi) / spread * series
