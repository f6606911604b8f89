"""Paths of the rings that a gang makes on its servers: which edges leave a group, and what uplinks leave of them. Pure.

Ranks fill one server after the other in node-rank order, so that a group of ranks at equal distances is a group of
servers at equal distances, and so many groups do the same at the same time.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gangline.fabric.topology.inventory import Fabric
from gangline.fabric.traffic.paths import PathLoad, path_load
from gangline.fabric.traffic.rings import ring_order

NO_UPLINK = PathLoad(busiest_flows=0.0, efficiency=1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class RingTraffic:
    """What data-parallel ranks exchange in rings of one kind, all of which turn at the same time."""

    wire_bytes: float
    """Bytes that one rank sends in a step."""
    ranks: int
    """Ranks of a ring."""
    rank_stride: int = 1
    """Distance of two neighbours in the order of ranks."""
    steps: float = 0.0
    """Messages of a step that follow each other, each of which waits one latency."""

    def crosses(self, ranks_per_server: int) -> bool:
        """Its ranks are on several servers."""
        return self.ranks > 1 and self.rank_stride * self.ranks > ranks_per_server

    def members(self, ranks_per_server: int) -> int:
        """Members of a ring on each server, which share what it sends to the next one."""
        return max(1, min(self.ranks, ranks_per_server // self.rank_stride))

    def rail_bytes(self, ranks_per_server: int) -> float:
        """Sent in a step by one NIC of a server."""
        return self.wire_bytes / self.members(ranks_per_server) if self.crosses(ranks_per_server) else 0.0


@dataclass(frozen=True, slots=True)
class OrderPaths:
    """Servers in node-rank order on their fabric."""

    fabric: Fabric
    groups: Sequence[int]
    """Place in the fabric of the group of each server."""
    ranks_per_server: int
    _loads: dict[tuple[int, int], PathLoad | None] = field(default_factory=dict, compare=False)

    def load(self, ranks: int, rank_stride: int) -> PathLoad | None:
        """Load of such rings on the uplinks of all leaves of one rail; None: how many there are is not known."""
        key = self._servers(ranks, rank_stride), self._distance(rank_stride)
        if key not in self._loads:
            self._loads[key] = self._load(*key)
        return self._loads[key]

    def efficiency(self, ranks: int, rank_stride: int) -> float:
        """Efficiency of such rings; 1 where the number of uplinks is not known."""
        load = self.load(ranks, rank_stride)
        return 1.0 if load is None else load.efficiency

    def crossings(self, ranks: int, rank_stride: int) -> int:
        """Edges between two groups, on each rail."""
        servers = self._servers(ranks, rank_stride)
        return self._flows(servers, self._distance(rank_stride)).total()

    def least_flows(self, ranks: int, rank_stride: int) -> float | None:
        """Flows on the busiest uplink, were they spread by hand; None: how many uplinks there are is not known."""
        flows = self._flows(self._servers(ranks, rank_stride), self._distance(rank_stride))
        if not flows:
            return 0.0
        uplinks = self.fabric.leaf_uplinks
        return None if uplinks is None else path_load("pinned", list(flows.values()), uplinks=uplinks).busiest_flows

    def _distance(self, rank_stride: int) -> int:
        return max(1, rank_stride // self.ranks_per_server)

    def _servers(self, ranks: int, rank_stride: int) -> int:
        """Servers of a ring."""
        return max(1, ranks * rank_stride // self.ranks_per_server // self._distance(rank_stride))

    def _load(self, servers: int, distance: int) -> PathLoad | None:
        flows = self._flows(servers, distance)
        if not flows:
            return NO_UPLINK
        if self.fabric.leaf_uplinks is None:
            return None
        return path_load(
            self.fabric.path_policy, sorted(flows.values()), uplinks=self.fabric.leaf_uplinks,
            connections=self.fabric.connections,
        )  # fmt: skip

    def _flows(self, servers: int, distance: int) -> Counter[int]:
        """Flows that leave each group, of all rings together."""
        return Counter(here for here, there in self._edges(servers, distance) if here != there)

    def _edges(self, servers: int, distance: int) -> Iterator[tuple[int, int]]:
        groups, span = self.groups, servers * distance
        for start in range(0, len(groups) - span + 1, span):
            for at in range(start, start + span - distance):
                yield groups[at], groups[at + distance]
            if servers > 1:
                for at in range(start, start + distance):
                    yield groups[at + span - distance], groups[at]


def of_fewest_groups(fabric: Fabric, servers: int) -> tuple[str, ...]:
    """So many servers of the largest groups, in the order of a ring that crosses least, as if all of them were free."""
    groups = sorted(fabric.groups, key=lambda each: (-len(each.servers), each.name))
    return ring_order(fabric, [server for group in groups for server in group.servers][:servers])


def paths_of(fabric: Fabric, servers: Sequence[str], ranks_per_server: int) -> OrderPaths:
    """Paths of servers in node-rank order."""
    place = {server: at for at, group in enumerate(fabric.groups) for server in group.servers}
    return OrderPaths(fabric, [place[server] for server in servers], ranks_per_server)
