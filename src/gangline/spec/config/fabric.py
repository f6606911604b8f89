"""`fabric.toml` as frozen data: the network between servers, as its administrator states it."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from gangline.spec.bounds import BYTES_PER_SECOND, HOURS_TO_FAILURE, SECONDS_OF_A_MESSAGE, Bound

PathPolicy = Literal["hash", "pinned", "spray", "unknown"]
Preset = Literal["llama3", "rsc1", "rsc2", "month-99.9", "month-99.99", "hpn-link", "optics-10M"]

MOST_PORTS = 65_536
"""Most ports of a server or a leaf."""
_UNKNOWN = "leave it out where it is not known"
_RATE = replace(BYTES_PER_SECOND, works=_UNKNOWN)


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureRates:
    """Mean hours to a failure of one device of each kind; none: such failures are not counted."""

    gpu_hours: Annotated[float | None, HOURS_TO_FAILURE] = None
    """Mean hours to a failure of a GPU, with its share of everything else that stops a gang."""
    server_hours: Annotated[float | None, HOURS_TO_FAILURE] = None
    """Mean hours to a failure of a server."""
    optic_hours: Annotated[float | None, HOURS_TO_FAILURE] = None
    """Mean hours to a failure of an optical module."""
    link_hours: Annotated[float | None, HOURS_TO_FAILURE] = None
    """Mean hours to a failure of a link from a NIC to its leaf."""
    leaf_hours: Annotated[float | None, HOURS_TO_FAILURE] = None
    """Mean hours to a failure of a leaf switch, counted where NICs have no second one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupTable:
    """Servers that hang on the same leaf switches, one of `fabric.groups`."""

    name: str
    """Value of the group's node label."""
    servers: str
    """Names in order of position: "a[001-064]", "a[001-032,040],b7"."""
    block: str = ""
    """Groups that one spine joins; empty: not known."""
    leaves: int | None = None
    """Leaf switches of the group, checked against the rails; none: not checked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FabricTable:
    """Servers, rails, groups and speeds of one network."""

    groups: tuple[GroupTable, ...] = ()
    """Every group with its servers."""
    group_size: int | None = None
    """Servers of every group, checked; none: groups differ."""
    rails: Annotated[int, Bound(least=1, works="8 is the default"), Bound(most=MOST_PORTS)] = 8
    """NICs and GPUs of a server; NIC i of every server of a group hangs on leaf i of it."""
    dual_homed: bool = False
    """Every NIC hangs on two leaves."""
    nic_bytes_per_second: Annotated[float | None, _RATE] = None
    """Line rate of one NIC; none: not known."""
    nic_bus_efficiency: Annotated[float, Bound(above=0, most=1, words="a share in (0, 1]")] = 0.80
    """Share of that rate which arrives as bus bandwidth on an idle network."""
    intra_bus_bytes_per_second: Annotated[float | None, _RATE] = None
    """Bus bandwidth between the GPUs of a server, of one GPU; none: not known."""
    nic_latency_seconds: Annotated[float | None, SECONDS_OF_A_MESSAGE] = None
    """Latency of a message of a collective between ranks on two servers; none: that of the site, else 0."""
    intra_latency_seconds: Annotated[float | None, SECONDS_OF_A_MESSAGE] = None
    """Latency of a message of a collective between the GPUs of a server; none: that of the site, else 0."""
    leaf_uplinks: Annotated[int | None, Bound(least=1, works=_UNKNOWN), Bound(most=MOST_PORTS)] = None
    """Ports of a leaf towards the spines; none: not known."""
    oversubscription: Annotated[float | None, Bound(above=0, most=MOST_PORTS, words="above 0", works=_UNKNOWN)] = None
    """Ports of a leaf down to servers for one up, checked; none: not claimed."""
    path_policy: PathPolicy = "unknown"
    """How flows are spread over uplinks: by a hash, pinned by hand, or packet by packet."""
    connections: Annotated[int, Bound(least=1, works="1 is the default")] = 1
    """Connections that each flow is split over (NCCL_IB_QPS_PER_CONNECTION)."""
    failures: Preset | FailureRates = "llama3"
    """Published rates of interruptions by name, or a table of mean hours to a failure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FabricFile:
    """`fabric.toml`, whole."""

    fabric: FabricTable
