"""Cost of a plan's order of servers on its fabric, with the least possible cost, in one line. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from gangline.errors import ConfigError
from gangline.fabric.placement.mapping import crossings, least_data_crossings
from gangline.fabric.placement.training import SECONDS_AN_HOUR, fabric_rate
from gangline.fabric.reliability.failures import interrupt_probability, mean_hours_between
from gangline.fabric.reliability.interval import best_interval
from gangline.fabric.topology.inventory import Fabric
from gangline.fabric.traffic.collectives import algorithm_bandwidth, bus_bandwidth, wire_seconds
from gangline.fabric.traffic.order_paths import OrderPaths, RingTraffic
from gangline.spec.codec import Document


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanTraffic:
    """What a plan asks of the network; None: not known."""

    replicas: int
    """Servers of one pipeline stage."""
    stages: int = 1
    gpus: int | None = None
    """GPUs of the whole plan; None: all GPUs of the servers."""
    ranks_per_server: int = 8
    rings: tuple[RingTraffic, ...]
    """Rings of data-parallel ranks of an average stage."""
    slowest_rings: tuple[RingTraffic, ...] = ()
    """Rings of the stage for which the others wait; empty: all send alike."""
    inside_latency: float = 0.0
    """Seconds of a message inside a server, where the fabric does not say."""
    across_latency: float = 0.0
    """Seconds of a message between servers, where the fabric does not say."""
    stage_edge_bytes: float = 0.0
    """Bytes of one rail and step between the same replica of neighbouring stages, both ways together."""
    expert_edge_bytes: float = 0.0
    """Bytes of one rail and step from each server of an expert group to each other one."""
    expert_servers: int = 1
    """Neighbouring replicas of a stage that share their experts."""
    compute_seconds: float | None = None
    """Computing time of a step."""
    overlap: float = 0.0
    """Share of it that hides traffic."""
    hours: float | None = None
    """Duration of the training."""
    write_seconds: float | None = None
    """Time for which one checkpoint stops the training."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate(Document):
    """Forecast of one order of servers; None: not known, as the fabric or the plan does not say it."""

    fabric: str
    """Digest of it."""
    groups: int
    least_groups: int
    """Least number of groups that could hold as many servers, were all of them free."""
    data_crossings: int
    """Edges of all rings between two groups, on each rail."""
    least_data_crossings: int
    stage_crossings: int
    """Edges from a stage to the next between two groups."""
    expert_crossings: int = 0
    """Ordered pairs of servers of an expert group in two groups."""
    bytes_between: float
    """Bytes of one rail and step, between groups."""
    busiest_flows: float | None = None
    """Expected on the busiest uplink while rings reduce."""
    least_busiest_flows: float | None = None
    """Were flows spread by hand."""
    algorithm_bytes_per_second: float | None = None
    """Bandwidth of the all-reduce of the rings that send most between servers ("algbw")."""
    speed_up: float | None = None
    """Computing over computing and the exchange that it does not hide."""
    overlap: float = 0.0
    """Share of computing that hides exchanges, in `speed_up`."""
    worst_speed_up: float | None = None
    """Were nothing hidden."""
    interrupt_probability: float | None = None
    """Probability of one or more interruptions within the training."""
    interval_seconds: float | None = None
    """Time of training between two checkpoints."""
    links: str = "assumed"
    """Whether speeds between servers were measured, and when."""
    policy: str = "unknown"
    connections: int = 1

    @property
    def line(self) -> str:
        """All figures in one line, each with its bound."""
        alg, share, chance = self.algorithm_bytes_per_second, self.speed_up, self.interrupt_probability
        busiest = f"{self.busiest_flows:.1f} flows (bound {self.least_busiest_flows:.1f})" if self.busiest_flows else ""
        parts = (
            f"groups {self.groups:,} (bound {self.least_groups:,})",
            f"DP crossings {self.data_crossings:,} (bound {self.least_data_crossings:,})",
            f"PP crossings {self.stage_crossings:,}",
            *([f"EP crossings {self.expert_crossings:,}"] if self.expert_crossings else []),
            f"{self.bytes_between / 1e9:.1f} GB a rail and step",
            f"busiest uplink {busiest or _UNKNOWN}" if self.busiest_flows != 0 else "no uplink",
            f"all-reduce {_UNKNOWN if alg is None else f'{alg / 1e9:.1f} GB/s alg'}",
            f"speed-up {_speed_words(share, self.overlap, self.worst_speed_up)}",
            f"P(interrupt) {_UNKNOWN if chance is None else f'{chance:.2f}'}",
            f"checkpoint {_interval(self.interval_seconds)}",
            f"policy {self.policy} ({'counted as hash' if self.policy == 'unknown' else 'given'})",
            "computed",
        )
        return " · ".join(parts)


_UNKNOWN = "not known"


def _speed_words(share: float | None, overlap: float, worst: float | None) -> str:
    """Speed-up as text, and what it is without overlap if there is some."""
    if share is None:
        return _UNKNOWN
    without = "" if not overlap or worst is None else f" with overlap {overlap:.0%}, {worst:.1%} without"
    return f"{share:.1%}{without}".replace("%", " %")


def _interval(seconds: float | None) -> str:
    if seconds is None:
        return _UNKNOWN
    return f"every {seconds / 60:.1f} min" if seconds < SECONDS_AN_HOUR else f"every {seconds / SECONDS_AN_HOUR:.1f} h"


def certify(fabric: Fabric, servers: Sequence[str], traffic: PlanTraffic, *, links: str = "assumed") -> Certificate:
    """The certificate of `servers` in node-rank order: stages, then replicas; `links` says how speeds are known.

    Raises:
        ConfigError: A server is not in the fabric, or there are not as many as replicas of all stages.
    """
    rows = _rows(fabric, servers, traffic)
    names = sorted({group for row in rows for group in row})
    sizes = Counter(group for row in rows for group in row)
    paths = OrderPaths(fabric, [group for row in rows for group in row], traffic.ranks_per_server)
    between = [ring for ring in traffic.rings if ring.crosses(traffic.ranks_per_server)]
    edges = [paths.crossings(ring_traffic.ranks, ring_traffic.rank_stride) for ring_traffic in between]
    widest = max(between, key=lambda ring_traffic: ring_traffic.wire_bytes, default=None)
    busiest, least = _busiest_flows(paths, between)
    exchange = _exchange_seconds(fabric, paths, traffic)
    _, stage, experts = crossings(rows, traffic.expert_servers)
    rate = fabric_rate(fabric, servers=len(servers), gpus=traffic.gpus)
    writes = traffic.write_seconds
    return Certificate(
        fabric=fabric.digest, groups=len(names), least_groups=_least_groups(fabric, len(servers)),
        data_crossings=sum(edges), least_data_crossings=least_data_crossings(list(sizes.values()), traffic.replicas),
        stage_crossings=stage, expert_crossings=experts,
        bytes_between=sum(
            count * ring.rail_bytes(traffic.ranks_per_server) for count, ring in zip(edges, between, strict=True)
        ) + stage * traffic.stage_edge_bytes + experts * traffic.expert_edge_bytes,
        busiest_flows=busiest, least_busiest_flows=least,
        algorithm_bytes_per_second=_algorithm_bandwidth(fabric, paths, widest, traffic),
        speed_up=_speed_up(traffic, exchange, traffic.overlap), overlap=traffic.overlap,
        worst_speed_up=_speed_up(traffic, exchange, 0.0),
        interrupt_probability=None if traffic.hours is None else interrupt_probability(rate, traffic.hours),
        interval_seconds=None if writes is None else best_interval(writes, SECONDS_AN_HOUR * mean_hours_between(rate)),
        links=links, policy=fabric.path_policy, connections=fabric.connections,
    )  # fmt: skip


def _rows(fabric: Fabric, servers: Sequence[str], traffic: PlanTraffic) -> list[list[int]]:
    """Group of each cell by its place in the fabric."""
    place = {group.name: at for at, group in enumerate(fabric.groups)}
    by_server = fabric.by_server
    if unknown := [server for server in servers if server not in by_server]:
        raise ConfigError(f"wanted servers of the fabric, found {', '.join(unknown[:8])}")
    if len(servers) != traffic.replicas * traffic.stages:
        raise ConfigError(
            f"wanted {traffic.replicas} x {traffic.stages} servers for replicas and stages, found {len(servers)}"
        )
    groups = [place[by_server[server].name] for server in servers]
    return [groups[start : start + traffic.replicas] for start in range(0, len(groups), traffic.replicas)]


def _bus(fabric: Fabric, paths: OrderPaths, ring: RingTraffic, ranks_per_server: int) -> float | None:
    """Bus bytes a second of a ring as its slowest flow has them; None: a rate or the uplinks are not known.

    Links inside a server do not limit it where the fabric does not say how fast they are.
    """
    crosses, load = ring.crosses(ranks_per_server), paths.load(ring.ranks, ring.rank_stride)
    if crosses and (load is None or fabric.nic_bytes_per_second is None):
        return None
    return bus_bandwidth(
        members_per_server=ring.members(ranks_per_server), crosses_servers=crosses,
        intra_bytes_per_second=fabric.intra_bus_bytes_per_second or inf,
        nic_bytes_per_second=fabric.nic_bytes_per_second or 0.0,
        efficiency=fabric.nic_bus_efficiency * (load.efficiency if load else 1.0),
    )  # fmt: skip


def _busiest_flows(paths: OrderPaths, rings: Sequence[RingTraffic]) -> tuple[float | None, float | None]:
    """Flows on the busiest uplink, by the fabric's policy and at the least; None: uplinks are not known."""
    loads = [paths.load(ring.ranks, ring.rank_stride) for ring in rings]
    if None in loads:
        return None, None
    least = [paths.least_flows(ring.ranks, ring.rank_stride) or 0.0 for ring in rings]
    return max((path_load.busiest_flows for path_load in loads if path_load), default=0.0), max(least, default=0.0)


def _algorithm_bandwidth(
    fabric: Fabric, paths: OrderPaths, widest: RingTraffic | None, traffic: PlanTraffic
) -> float | None:
    bus = None if widest is None else _bus(fabric, paths, widest, traffic.ranks_per_server)
    return None if bus is None or widest is None else algorithm_bandwidth(
        "all_reduce", ranks=widest.ranks, bus_bytes_per_second=bus
    )  # fmt: skip


def _exchange_seconds(fabric: Fabric, paths: OrderPaths, traffic: PlanTraffic) -> float | None:
    """Exchange time of a step, before any of it is hidden; None: a rate is not known."""
    seconds = 0.0
    for ring in traffic.slowest_rings or traffic.rings:
        if ring.ranks > 1:
            bus = _bus(fabric, paths, ring, traffic.ranks_per_server)
            if bus is None:
                return None
            seconds += wire_seconds(
                ring.wire_bytes, bus_bytes_per_second=bus, steps=ring.steps,
                latency_seconds=_latency(fabric, traffic, crosses=ring.crosses(traffic.ranks_per_server)),
            )  # fmt: skip
    return seconds


def _latency(fabric: Fabric, traffic: PlanTraffic, *, crosses: bool) -> float:
    own = fabric.nic_latency_seconds if crosses else fabric.intra_latency_seconds
    return own if own is not None else traffic.across_latency if crosses else traffic.inside_latency


def _least_groups(fabric: Fabric, servers: int) -> int:
    left, groups = servers, 0
    for size in sorted((len(group.servers) for group in fabric.groups), reverse=True):
        if left <= 0:
            break
        left, groups = left - size, groups + 1
    return groups


def _speed_up(traffic: PlanTraffic, exchange: float | None, overlap: float) -> float | None:
    if exchange == 0:
        return 1.0
    if not traffic.compute_seconds or exchange is None:
        return None
    return 1 / (1 + max(0.0, exchange / traffic.compute_seconds - overlap))
