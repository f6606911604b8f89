"""Messages between ranks in bytes and seconds: the one module that knows what a ring sends and how fast links are.

Traffic of traced models, rings by formula, forecasts and certificates all come here. Rates are those of a site; of
messages that were measured `speeds` says how long they take. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf

from gangline.fabric.placement.mapping import EdgeBytes
from gangline.fabric.placement.tiles import planned_order
from gangline.fabric.traffic.collectives import bus_bandwidth, bus_factor, collective_seconds, ring_steps, wire_seconds
from gangline.fabric.traffic.order_paths import OrderPaths, paths_of
from gangline.planner.pool import Pool, num_nodes, ranks_per_node
from gangline.spec.devices import Exchange
from gangline.spec.plan import Device

num_steps = ring_steps
"""Messages of a ring that follow each other, each of which waits one latency, for modules that know no collectives."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
    """One kind of message in a step."""

    part: str
    """Part of the step that it is booked under."""
    kind: Exchange
    size_bytes: float
    ranks: int
    count: float
    """Times a step; below 1: not in every one."""
    rank_stride: int = 1
    """Distance of two neighbours in the order of ranks; 1: they are consecutive."""
    peers: int = 0
    """Ranks of the whole axis, where `ranks` are two of it; 0: as many as `ranks`."""

    @property
    def wire_bytes(self) -> float:
        """Sent by one rank in a step, by a ring or pairwise."""
        return self.count * bus_factor(self.kind, self.ranks) * self.size_bytes

    @property
    def steps(self) -> float:
        """Messages of a step that follow each other."""
        return self.count * ring_steps(self.kind, self.ranks)

    @property
    def span(self) -> int:
        """Consecutive ranks that hold all of its axis."""
        return self.rank_stride * (self.peers or self.ranks)


def sent_bytes(kind: Exchange, ranks: int, size_bytes: float) -> float:
    """Bytes that one rank sends in a ring for a tensor of `size_bytes`; 0 for a rank alone."""
    return bus_factor(kind, ranks) * size_bytes


def wire_bytes(messages: Sequence[Collective], *, device: Device) -> float:
    """Bytes that one rank sends in a step, in rings as NCCL and gloo make them; gloo reduces whole, then cuts."""
    return sum(
        message.count * message.size_bytes * sent_share(message.kind, message.ranks, device) for message in messages
    )


def sent_share(kind: Exchange, ranks: int, device: Device) -> float:
    """Bytes that a rank sends for each byte of the tensor; gloo scatters sums by reducing the whole of it."""
    return bus_factor("all_reduce" if kind == "reduce_scatter" and device == "cpu" else kind, ranks)


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkRates:
    """Rates of the links of GPUs, as the site gives them."""

    node: int
    """Ranks of a server."""
    inside: float | None
    """Bytes per second of one GPU to others of its server; None: not given."""
    across: float | None
    """Bytes per second to those of other servers."""
    inside_latency: float = 0.0
    """Seconds of a message, whatever its size, to others of its server."""
    across_latency: float = 0.0
    """Seconds of a message to those of other servers."""
    paths: OrderPaths | None = None
    """Paths that messages between servers take; None: nothing shares a link."""
    _rings: dict[tuple[int, int, int], tuple[float | None, float]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Rate and latency of rings that were asked for, as plans by formula ask for few of them thousands of times."""

    def seconds(self, message: Collective) -> float | None:
        """None: the bandwidth of a link that it takes is not given."""
        peers, stride = (message.peers or message.ranks) if message.kind == "send" else 0, message.rank_stride
        rate = self.bus_bytes_per_second(message.ranks, rank_stride=stride, peers=peers)
        if rate is None:
            return None
        return collective_seconds(
            message.kind, message.size_bytes, ranks=message.ranks, bus_bytes_per_second=rate,
            latency_seconds=self.latency_seconds(message.span),
        )  # fmt: skip

    def ring_seconds(
        self, wire_bytes: float, ranks: int, *, steps: float, rank_stride: int = 1, peers: int = 0
    ) -> float:
        """Seconds of so many bytes on the wire of one rank, in `steps` messages that follow each other; 0 between one
        rank and itself, infinite where no rate is known. Ranks are those of `bus_bytes_per_second`."""
        if ranks == 1 or not wire_bytes:
            return 0.0
        key = ranks, rank_stride, peers
        if key not in self._rings:
            rate = self.bus_bytes_per_second(ranks, rank_stride=rank_stride, peers=peers)
            self._rings[key] = rate, self.latency_seconds(rank_stride * (peers or ranks))
        bus, latency = self._rings[key]
        return wire_seconds(wire_bytes, bus_bytes_per_second=bus, steps=steps, latency_seconds=latency) if bus else inf

    @property
    def without_latency(self) -> "LinkRates":
        """The same, as if messages took their bytes alone; itself where they do."""
        if not self.inside_latency and not self.across_latency:
            return self
        return replace(self, inside_latency=0.0, across_latency=0.0)

    def latency_seconds(self, span: int) -> float:
        """Latency of a message between neighbours of so many consecutive ranks."""
        return self.across_latency if span > self.node else self.inside_latency

    def bus_bytes_per_second(self, ranks: int, *, rank_stride: int = 1, peers: int = 0) -> float | None:
        """Rate of a group of `ranks`; None: the bandwidth of a link that it takes is not given.

        Two neighbours are `rank_stride` apart; `peers` are those of the whole axis, where two exchange at a time.
        """
        crosses = rank_stride * (peers or ranks) > self.node
        members = 1 if peers else max(1, min(ranks, self.node // rank_stride))
        needed = ([self.across] if crosses else []) + ([self.inside] if not crosses or members > 1 else [])
        if None in needed:
            return None
        return bus_bandwidth(
            members_per_server=members, intra_bytes_per_second=self.inside or inf,
            nic_bytes_per_second=self.across or 0.0, crosses_servers=crosses,
            efficiency=self.paths.efficiency(peers or ranks, rank_stride) if crosses and self.paths else 1.0,
        )  # fmt: skip


def link_rates(pool: Pool, world_size: int, *, stages: int = 1, edges: EdgeBytes | None = None) -> LinkRates:
    """Links of so many ranks, on the fewest nodes; those of a pipeline are in the order that its `edges` want."""
    node, servers = ranks_per_node(pool, world_size), num_nodes(pool, world_size)
    paths = None
    if pool.fabric is not None and 1 < servers <= len(pool.fabric.servers):
        paths = _paths(pool.fabric, planned_order(pool.fabric, servers, stages=stages, edges=edges), node)
    return LinkRates(
        node=node, inside=pool.gpu.link_bytes_per_second, across=pool.gpu.network_bytes_per_second,
        inside_latency=pool.gpu.link_latency_seconds or 0.0, across_latency=pool.gpu.network_latency_seconds or 0.0,
        paths=paths,
    )  # fmt: skip


_paths = lru_cache(maxsize=64)(paths_of)
"""It keeps what it has computed of loads."""
