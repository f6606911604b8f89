"""What a plan's order of servers costs on its fabric, beside the least it could, in one line. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gangline.errors import ConfigError
from gangline.fabric.collectives import speed_up
from gangline.fabric.failures import interrupt_probability, mean_hours_between
from gangline.fabric.interval import best_interval
from gangline.fabric.inventory import Fabric
from gangline.fabric.mapping import EdgeBytes, crossings, least_data_crossings
from gangline.fabric.paths import PathLoad, path_load
from gangline.fabric.training import SECONDS_AN_HOUR, fabric_rate, ring_bandwidth
from gangline.spec.codec import Document


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanTraffic:
    """What a plan asks of the network; None: not known."""

    replicas: int
    """Servers of a ring: those of one pipeline stage."""
    stages: int = 1
    gpus: int | None = None
    """Of all of them; None: all GPUs of the servers."""
    edges: EdgeBytes
    size_bytes: float
    """That one rank reduces in a step."""
    compute_seconds: float | None = None
    """Of a step."""
    overlap: float = 0.0
    """Share of it that hides traffic."""
    hours: float | None = None
    """That the training takes."""
    write_seconds: float | None = None
    """For which one checkpoint stops it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate(Document):
    """Forecast of one order of servers; None: not known, as the fabric or the plan does not say it."""

    fabric: str
    """Digest of it."""
    groups: int
    least_groups: int
    """That could hold as many servers, were all of them free."""
    data_crossings: int
    """Edges of all rings between two groups, on each rail."""
    least_data_crossings: int
    stage_crossings: int
    """Edges from a stage to the next between two groups."""
    bytes_between: float
    """Of one rail and step, between groups."""
    busiest_flows: float | None = None
    """Expected on the busiest uplink while rings reduce."""
    least_busiest_flows: float | None = None
    """Were flows spread by hand."""
    algorithm_bytes_per_second: float | None = None
    """Of the rings' all-reduce ("algbw")."""
    speed_up: float | None = None
    interrupt_probability: float | None = None
    """Of one or more within the training."""
    interval_seconds: float | None = None
    """Of training between two checkpoints."""
    links: str = "assumed"
    """Whether speeds between servers were measured, and when."""
    policy: str = "unknown"
    connections: int = 1

    @property
    def line(self) -> str:
        """In one line, each figure beside its bound."""
        alg, share, chance = self.algorithm_bytes_per_second, self.speed_up, self.interrupt_probability
        busiest = f"{self.busiest_flows:.1f} flows (bound {self.least_busiest_flows:.1f})" if self.busiest_flows else ""
        parts = (
            f"groups {self.groups:,} (bound {self.least_groups:,})",
            f"DP crossings {self.data_crossings:,} (bound {self.least_data_crossings:,})",
            f"PP crossings {self.stage_crossings:,}",
            f"{self.bytes_between / 1e9:.1f} GB a rail and step",
            f"busiest uplink {busiest or _UNKNOWN}" if self.busiest_flows != 0 else "no uplink",
            f"all-reduce {_UNKNOWN if alg is None else f'{alg / 1e9:.1f} GB/s alg'}",
            f"speed-up {_UNKNOWN if share is None else f'{share:.1%}'.replace('%', ' %')}",
            f"P(interrupt) {_UNKNOWN if chance is None else f'{chance:.2f}'}",
            f"checkpoint {_interval(self.interval_seconds)}",
            f"policy {self.policy} ({'counted as hash' if self.policy == 'unknown' else 'given'})",
            "computed",
        )
        return " · ".join(parts)


_UNKNOWN = "not known"


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
    data, stage, _ = crossings(rows)
    load, least = _loads(fabric, rows)
    rate = fabric_rate(fabric, servers=len(servers), gpus=traffic.gpus)
    writes = traffic.write_seconds
    bandwidth = None if load is None or fabric.nic_bytes_per_second is None or traffic.replicas < 2 else ring_bandwidth(
        fabric, load, ranks=traffic.replicas
    )  # fmt: skip
    return Certificate(
        fabric=fabric.digest, groups=len(names), least_groups=_least_groups(fabric, len(servers)),
        data_crossings=data, least_data_crossings=least_data_crossings(list(sizes.values()), traffic.replicas),
        stage_crossings=stage, bytes_between=data * traffic.edges.data + stage * traffic.edges.stage,
        busiest_flows=None if load is None else load.busiest_flows,
        least_busiest_flows=None if least is None else least.busiest_flows,
        algorithm_bytes_per_second=bandwidth, speed_up=_speed_up(traffic, bandwidth),
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


def _loads(fabric: Fabric, rows: Sequence[Sequence[int]]) -> tuple[PathLoad | None, PathLoad | None]:
    """Of the rings by the fabric's policy, and the least; None: the uplinks are not known."""
    flows = Counter(here for row in rows for here, there in pairwise([*row, row[0]]) if here != there)
    if not flows:
        return PathLoad(busiest_flows=0.0, efficiency=1.0), PathLoad(busiest_flows=0.0, efficiency=1.0)
    if fabric.leaf_uplinks is None:
        return None, None
    counts = sorted(flows.values())
    found = path_load(fabric.path_policy, counts, uplinks=fabric.leaf_uplinks, connections=fabric.connections)
    return found, path_load("pinned", counts, uplinks=fabric.leaf_uplinks)


def _least_groups(fabric: Fabric, servers: int) -> int:
    left, groups = servers, 0
    for size in sorted((len(group.servers) for group in fabric.groups), reverse=True):
        if left <= 0:
            break
        left, groups = left - size, groups + 1
    return groups


def _speed_up(traffic: PlanTraffic, bandwidth: float | None) -> float | None:
    if traffic.replicas == 1:
        return 1.0
    if not traffic.compute_seconds or bandwidth is None:
        return None
    return speed_up(
        traffic_bytes_per_second=traffic.size_bytes / traffic.compute_seconds, algorithm_bytes_per_second=bandwidth,
        overlap=traffic.overlap,
    )  # fmt: skip
