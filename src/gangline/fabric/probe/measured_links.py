"""Speeds between servers as they were measured, and the fabric with them in place of what its file assumes. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

from gangline.errors import CapacityError
from gangline.fabric.probe.pair_times import Pair, group_matrix
from gangline.fabric.topology.inventory import Fabric
from gangline.spec.codec import Document
from gangline.spec.measurements import RankOrder
from gangline.units import format_bytes

OWN_SHARE = 0.5
"""Share of a server's speed to itself: what is below it between servers is the network's, not the prober's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupSpeed:
    """Median speed from a group to a group."""

    source: str
    target: str
    bytes_per_second: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkMeasurement(Document):
    """Bandwidth between servers, in rounds of disjoint pairs."""

    date: str
    """UTC, ISO 8601."""
    servers: tuple[str, ...]
    num_pairs: int
    """Ordered, that answered."""
    seconds: float
    """Duration of the test of each pair."""
    transport: str = "one TCP connection"
    bytes_per_second: float
    """Median of the pairs: of one NIC of a server."""
    slowest_bytes_per_second: float
    own_bytes_per_second: float
    """Median of what servers send to themselves: the prober does not do more."""
    groups: tuple[GroupSpeed, ...] = ()
    """Empty: groups are not known."""

    @property
    def is_of_network(self) -> bool:
        """What was measured is a property of the network; else the network may do more."""
        return self.bytes_per_second < OWN_SHARE * self.own_bytes_per_second

    @property
    def words(self) -> str:
        """Speed, date, servers and conditions."""
        return (
            f"{format_bytes(self.bytes_per_second)}/s on {self.date[:10]} over {self.transport}, "
            f"{self.num_pairs} pairs of {len(self.servers)} servers"
        )


def link_measurement(
    speeds: Mapping[Pair, float], own: Mapping[Pair, float], *, groups: Mapping[str, str], date: str, seconds: float
) -> LinkMeasurement:
    """Measurement from speeds by sender and receiver, 0 without an answer.

    Raises:
        CapacityError: No pair answered, or no server sent to itself.
    """
    answered = {pair: speed for pair, speed in speeds.items() if speed}
    of_prober = [speed for speed in own.values() if speed]
    if not answered or not of_prober:
        raise CapacityError(f"wanted speeds of pairs and of single servers, found {len(answered)} and {len(of_prober)}")
    matrix = group_matrix(answered, groups=groups) if groups else {}
    return LinkMeasurement(
        date=date, servers=tuple(sorted({name for pair in answered for name in pair})), num_pairs=len(answered),
        seconds=seconds, bytes_per_second=median(answered.values()), slowest_bytes_per_second=min(answered.values()),
        own_bytes_per_second=median(of_prober),
        groups=tuple(
            GroupSpeed(source=one, target=other, bytes_per_second=speed) for (one, other), speed in matrix.items()
        ),
    )  # fmt: skip


def with_speeds(order: RankOrder, measurement: LinkMeasurement | None) -> RankOrder:
    """`order` with the speeds between its groups, as far as they were measured."""
    speeds = (
        {(group.source, group.target): group.bytes_per_second for group in measurement.groups} if measurement else {}
    )
    edges = (
        replace(edge, bytes_per_second=speeds.get((_group(edge.source), _group(edge.target)))) for edge in order.edges
    )
    return replace(order, edges=tuple(edges))


def _group(name: str) -> str:
    """Name of the group without its block."""
    return name.rpartition("/")[2]


def is_about(measurement: LinkMeasurement, fabric: Fabric) -> bool:
    """All servers that were measured are in the fabric."""
    return set(measurement.servers) <= set(fabric.servers)


def with_measured_links(fabric: Fabric, measurement: LinkMeasurement | None) -> Fabric:
    """`fabric` with the NICs as fast as they were measured; as it is stated where nothing of it was."""
    if measurement is None or not is_about(measurement, fabric) or not measurement.is_of_network:
        return fabric
    return replace(fabric, nic_bytes_per_second=measurement.bytes_per_second, nic_bus_efficiency=1.0)


def links_words(fabric: Fabric, measurement: LinkMeasurement | None) -> str:
    """Whether speeds between servers are measured or assumed, with date and conditions."""
    if measurement is None:
        return "assumed, as fabric.toml states them"
    if not is_about(measurement, fabric):
        return f"assumed, as fabric.toml states them; measured was {measurement.words}, of others than it names"
    if not measurement.is_of_network:
        own = format_bytes(measurement.own_bytes_per_second)
        return f"assumed; measured at least {measurement.words}, and no prober does more than {own}/s"
    return f"measured {measurement.words}"
