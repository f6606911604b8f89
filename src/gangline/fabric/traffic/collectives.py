"""Seconds of a collective on a bus, what traffic leaves of the speed-up, and the days of a training. Pure.

Bus and algorithm bandwidth differ by the factor of the collective: `bus = factor x size / seconds`, `algorithm =
size / seconds`. No function here returns one of them without saying which.

Source:
    NVIDIA/nccl-tests, doc/PERFORMANCE.md, for rings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from gangline.errors import ConfigError
from gangline.spec.devices import Exchange

SECONDS_A_DAY = 86_400.0


def bus_factor(kind: Exchange, ranks: int) -> float:
    """Bytes that cross the slowest link for each byte of the whole tensor; 0 for a rank alone."""
    if ranks == 1:
        return 0.0
    share = (ranks - 1) / ranks
    if kind == "all_reduce":
        return 2 * share
    return 1.0 if kind in ("broadcast", "reduce", "send") else share


def ring_steps(kind: Exchange, ranks: int) -> int:
    """Messages that follow each other on a ring, each of which waits one latency."""
    if kind == "send":
        return 1 if ranks > 1 else 0
    return (ranks - 1) * (2 if kind == "all_reduce" else 1)


def collective_seconds(
    kind: Exchange, size_bytes: float, *, ranks: int, bus_bytes_per_second: float, latency_seconds: float = 0.0
) -> float:
    """Duration of one collective over `size_bytes`, the whole tensor on a rank that has all of it.

    Args:
        bus_bytes_per_second: Bus bandwidth, as `bus_bandwidth` gives it and nccl-tests print it ("busbw").
        latency_seconds: Of one message.
    """
    return wire_seconds(
        bus_factor(kind, ranks) * size_bytes, bus_bytes_per_second=bus_bytes_per_second,
        steps=ring_steps(kind, ranks), latency_seconds=latency_seconds,
    )  # fmt: skip


def wire_seconds(
    wire_bytes: float, *, bus_bytes_per_second: float, steps: float = 0, latency_seconds: float = 0.0
) -> float:
    """Duration of what one rank sends, in so many messages that follow each other."""
    return latency_seconds * steps + wire_bytes / bus_bytes_per_second


def algorithm_bandwidth(kind: Exchange, *, ranks: int, bus_bytes_per_second: float) -> float:
    """Bytes of the tensor a second ("algbw") on a bus of `bus_bytes_per_second`; infinite for a rank alone."""
    factor = bus_factor(kind, ranks)
    return bus_bytes_per_second / factor if factor else float("inf")


def bus_bandwidth(
    *,
    members_per_server: int,
    intra_bytes_per_second: float,
    nic_bytes_per_second: float,
    efficiency: float = 1.0,
    crosses_servers: bool,
) -> float:
    """Bus bytes a second of a group with `members_per_server` ranks on each server that it touches.

    A ring that crosses servers uses the NIC of each member there, and is never faster than the links between them.

    Args:
        members_per_server: At least 1; a member alone on its server uses no link inside.
        efficiency: Share of the NIC that arrives: of the NIC itself times that of the paths (`fabric.traffic.paths`).
    """
    if not crosses_servers:
        return intra_bytes_per_second
    across = members_per_server * nic_bytes_per_second * efficiency
    return min(intra_bytes_per_second, across) if members_per_server > 1 else across


def speed_up(*, traffic_bytes_per_second: float, algorithm_bytes_per_second: float, overlap: float = 0.0) -> float:
    """Share of the ideal speed that is left while traffic delays the computation, in (0, 1].

    Args:
        traffic_bytes_per_second: Tensor bytes to exchange for each second of computation.
        algorithm_bytes_per_second: Algorithm bandwidth ("algbw").
        overlap: Share of the computation that hides traffic; 0 is the worst case.
    """
    return 1 / (1 + max(0.0, traffic_bytes_per_second / algorithm_bytes_per_second - overlap))


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedUpFit:
    """What measured speed-ups say of a model."""

    traffic_bytes_per_second: float
    """Tensor bytes to exchange for each second of computation."""
    overlap: float
    """Share of the computation that hides traffic; below 0: traffic takes longer than its bytes explain."""
    residual: float
    """Root of the mean square of what the line leaves unexplained of 1/S - 1."""


def fit_speed_up(points: Sequence[tuple[float, float]]) -> SpeedUpFit:
    """Least squares through (algorithm bytes per second, speed-up) pairs: 1/S - 1 is a line in 1/B.

    Raises:
        ConfigError: There are no two different bandwidths, or a number is not above 0.
    """
    if len({bandwidth for bandwidth, _ in points}) < 2 or min(min(point) for point in points) <= 0:
        raise ConfigError(f"a fit wants speed-ups above 0 at two different bandwidths, found {list(points)[:4]}")
    xs, ys = [1 / bandwidth for bandwidth, _ in points], [1 / share - 1 for _, share in points]
    x, y = fsum(xs) / len(xs), fsum(ys) / len(ys)
    slope = fsum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / fsum((a - x) ** 2 for a in xs)
    overlap = slope * x - y
    squares = fsum((slope * a - overlap - b) ** 2 for a, b in zip(xs, ys, strict=True))
    return SpeedUpFit(traffic_bytes_per_second=slope, overlap=overlap, residual=(squares / len(xs)) ** 0.5)


def training_days(
    *, parameters: float, tokens: float, gpus: int, flops_per_second: float, speed_up: float = 1.0, recompute: bool
) -> float:
    """Days of computation and exposed traffic, without interruptions.

    Args:
        flops_per_second: Delivered by one GPU.
        speed_up: As the function of that name gives it.
        recompute: Whole blocks are computed a second time in backward: 8 FLOP a parameter and token instead of 6.

    Source:
        Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters" (2021), arXiv 2104.04473.
    """
    flops = (8 if recompute else 6) * parameters * tokens
    return flops / (gpus * flops_per_second * speed_up) / SECONDS_A_DAY
