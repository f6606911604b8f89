"""A training on a fabric by its order of servers: bandwidth, speed-up, days, and what interruptions take. Pure.

The closed form of one ring over all servers on every rail, as data parallelism over them makes it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal

from gangline.errors import ConfigError
from gangline.fabric.reliability.failures import gang_rate, mean_hours_between
from gangline.fabric.reliability.interval import best_interval, effective_share
from gangline.fabric.topology.inventory import Fabric, Group
from gangline.fabric.traffic.collectives import algorithm_bandwidth, bus_bandwidth, speed_up, training_days
from gangline.fabric.traffic.paths import PathLoad, loads_of_policies
from gangline.fabric.traffic.rings import fewest_crossings, random_crossings
from gangline.spec.config.fabric import PathPolicy

Order = Literal["plan", "random"]
SECONDS_AN_HOUR = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingCase:
    """What is trained; the defaults are the reference case of 175e9 parameters."""

    parameters: float = 175e9
    tokens: float = 1.73e12
    flops_per_second: float = 140e12
    """Delivered by one GPU."""
    traffic_bytes_per_second: float = 2.182e9
    """Tensor bytes that a GPU exchanges for each second of computation."""
    overlap: float = 0.0
    """Share of the computation that hides traffic; 0 is the worst case."""
    recompute: bool = True
    """Whole blocks are computed a second time in backward."""
    write_seconds: float = 7.0
    """Time for which one checkpoint stops the training."""
    restart_seconds: float = 180.0
    """Time from an interruption to the next step."""


REFERENCE_FABRIC = Fabric(
    groups=tuple(
        Group(name=f"g{group:02}", servers=tuple(f"a{server:04}" for server in range(64 * group, 64 * group + 64)))
        for group in range(32)
    ),
    nic_bytes_per_second=50e9,
    intra_bus_bytes_per_second=200e9,
    leaf_uplinks=64,
    path_policy="hash",
)
"""Fabric of the reference case: 16,384 GPUs, NICs of 400 Gbit/s, switches of 128 ports."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderForecast:
    """How one order of servers changes speed, days and cost of a training."""

    order: Order
    policy: PathPolicy
    connections: int
    crossings: float
    """Edges of the ring between two groups, on each rail."""
    busiest_flows: float
    """Expected on the busiest uplink."""
    efficiency: float
    """Expected share of its NIC that the slowest flow gets."""
    algorithm_bytes_per_second: float
    """Bandwidth of an all-reduce ("algbw")."""
    speed_up: float
    net_days: float
    """Duration without interruptions."""
    wall_days: float
    """Duration with checkpoints, restarts and lost steps."""
    gpu_hours: float


def order_forecasts(
    fabric: Fabric, training: TrainingCase, *, orders: Sequence[Order], connections: Sequence[int] = ()
) -> list[OrderForecast]:
    """Forecasts by order, policy and connections; more connections are left out where they change nothing.

    Raises:
        ConfigError: The fabric lacks what they are computed from.
    """
    forecasts: list[OrderForecast] = []
    for order in orders:
        rows = [
            row for count in sorted(set(connections) or {fabric.connections})
            for row in _forecasts(fabric, training, order, count)
        ]  # fmt: skip
        fewer: dict[tuple[PathPolicy, float], OrderForecast] = {}
        for row in rows:
            fewer.setdefault((row.policy, round(row.efficiency, 9)), row)
        forecasts += sorted(fewer.values(), key=lambda row: (row.policy, -row.connections))
    return forecasts


def _forecasts(fabric: Fabric, training: TrainingCase, order: Order, connections: int) -> Iterator[OrderForecast]:
    sizes = [len(group.servers) for group in fabric.groups]
    if not sum(sizes):
        raise ConfigError("wanted servers in fabric.groups for a forecast, found none; state them in fabric.toml")
    crossings = fewest_crossings(len(sizes)) if order == "plan" else random_crossings(sizes)
    flows = [1] * len(sizes) if order == "plan" and crossings else _random_flows(sizes)
    uplinks = int(_known(fabric.leaf_uplinks, "leaf_uplinks")) if crossings else 1
    loads = loads_of_policies(fabric.path_policy, flows, uplinks=uplinks, connections=connections)
    for policy, load in loads.items():
        bandwidth = ring_bandwidth(fabric, load, ranks=sum(sizes))
        share = speed_up(
            traffic_bytes_per_second=training.traffic_bytes_per_second, algorithm_bytes_per_second=bandwidth,
            overlap=training.overlap,
        )  # fmt: skip
        net = training_days(
            parameters=training.parameters, tokens=training.tokens, gpus=fabric.num_gpus,
            flops_per_second=training.flops_per_second, speed_up=share, recompute=training.recompute,
        )  # fmt: skip
        wall = net / time_share(fabric, training)
        yield OrderForecast(
            order=order, policy=policy, connections=connections, crossings=crossings,
            busiest_flows=load.busiest_flows, efficiency=load.efficiency, algorithm_bytes_per_second=bandwidth,
            speed_up=share, net_days=net, wall_days=wall, gpu_hours=24 * wall * fabric.num_gpus,
        )  # fmt: skip


def _random_flows(sizes: Sequence[int]) -> list[int]:
    """Whole flows that leave each group in a random order; together as many as are expected."""
    servers = sum(sizes)
    expected = [size * (servers - size) / max(1, servers - 1) for size in sizes]
    return [round(end) - round(start) for start, end in pairwise(accumulate(expected, initial=0.0))]


def ring_bandwidth(fabric: Fabric, load: PathLoad, *, ranks: int) -> float:
    """Algorithm bytes a second of an all-reduce over one rank on each of `ranks` servers.

    Raises:
        ConfigError: The rate of the NICs is not known.
    """
    bus = bus_bandwidth(
        members_per_server=1, intra_bytes_per_second=0.0, crosses_servers=True,
        nic_bytes_per_second=_known(fabric.nic_bytes_per_second, "nic_bytes_per_second"),
        efficiency=fabric.nic_bus_efficiency * load.efficiency,
    )  # fmt: skip
    return algorithm_bandwidth("all_reduce", ranks=ranks, bus_bytes_per_second=bus)


def time_share(fabric: Fabric, training: TrainingCase) -> float:
    """Share of the time on all servers that becomes steps which are not lost, at the best checkpoint interval."""
    mean = SECONDS_AN_HOUR * mean_hours_between(fabric_rate(fabric, servers=len(fabric.servers)))
    interval = best_interval(training.write_seconds, mean)
    return effective_share(interval, training.write_seconds, training.restart_seconds, mean)


def fabric_rate(fabric: Fabric, *, servers: int, gpus: int | None = None) -> float:
    """Interruptions an hour of a gang on so many servers; `gpus` None: on all GPUs of them."""
    return gang_rate(
        fabric.failures, gpus=servers * fabric.rails if gpus is None else gpus, servers=servers,
        dual_homed=fabric.dual_homed,
    )  # fmt: skip


def _known(value: float | None, name: str) -> float:
    if value is None:
        raise ConfigError(f"wanted fabric.{name} for a forecast, found none; state it in fabric.toml")
    return value
