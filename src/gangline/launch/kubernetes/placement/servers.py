"""Servers of a cluster for placement: nodes, and what the pods of all namespaces leave free on each.

A server is a node, named by its host name label, because pods are bound by that label. Groups of the servers of a gang
are read from the labels of their nodes; `ObservedServers` follows where its pods are bound.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gangline.errors import ConfigError
from gangline.fabric.topology.importers import FAMILIES, LEAVES, Location, NodeLabels, locate, read_groups
from gangline.fabric.topology.inventory import Fabric, Group, natural_key
from gangline.launch.kubernetes.client.api import ApiForbidden, KubernetesApi, Object
from gangline.launch.kubernetes.objects.labels import GANG, HOSTNAME, POOL
from gangline.launch.kubernetes.placement.resources import Amounts, add, pod_needs, read_amounts, subtract
from gangline.launch.kubernetes.state.pods import is_living, is_over, node_rank
from gangline.spec.gang.podset import PlacedServer

NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerFacts:
    """One server as the placer and the inventory read it."""

    name: str
    """Value of its host name label."""
    node: str
    """Name of its node object."""
    group: str = ""
    block: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, Any], ...] = ()
    allocatable: Amounts = field(default_factory=dict)
    free: Amounts = field(default_factory=dict)
    """Allocatable minus the requests of all bound pods."""
    permanent: Amounts = field(default_factory=dict)
    """Requests of the pods without a Job, which do not end by themselves."""
    unusable_reason: str = ""
    """Why no pod at all can be placed there; empty: some can."""
    are_pods_known: bool = True
    """False: this account may not list all pods, so `free` equals `allocatable`."""

    @property
    def pool(self) -> str:
        """Pool of the server; empty: none."""
        return self.labels.get(POOL, "")


def read_servers(api: KubernetesApi) -> tuple[ServerFacts, ...]:
    """Every server, by name, numbers in names by value.

    Raises:
        ApiForbidden: This account may not list nodes.
        ConfigError: The fabric labels contradict each other.
    """
    nodes, _ = api.items(NODES)
    try:
        pods = api.items(PODS, fields="status.phase!=Succeeded,status.phase!=Failed")[0]
    except ApiForbidden:
        return survey_servers(nodes, None)
    return survey_servers(nodes, pods)


def read_locations(api: KubernetesApi, *, levels: Sequence[str] = (), by_host: bool = False) -> dict[str, Location]:
    """Where each node is in the network, by the labels of nodes.

    Args:
        api: Of the cluster.
        levels: Labels of the levels of a Topology above single servers, widest first: the last one names groups, the
            others blocks, and a node that lacks one is nowhere. None given: the labels of the network.
        by_host: Name nodes by their host name label, not by their own name.

    Raises:
        ApiForbidden: This account may not list nodes.
        ConfigError: The labels contradict each other.
    """
    nodes, _ = api.items(NODES, bare=True)
    located = (
        {each.node: _on_levels(each.labels, levels) for each in map(_node_labels, nodes)}
        if levels
        else locate(map(_node_labels, nodes))
    )
    hosts = _hosts(nodes) if by_host else {}
    return {hosts.get(node) or node: location for node, location in located.items()}


def _on_levels(labels: Mapping[str, str], levels: Sequence[str]) -> Location:
    if any(level not in labels for level in levels):
        return Location()
    *blocks, group = (labels[level] for level in levels)
    return Location(group=group, block="/".join(blocks), source_labels=tuple(levels))


def _hosts(nodes: Iterable[Object]) -> dict[str, str]:
    """Host name label of each node that has one, by node name."""
    hosts = {node["metadata"]["name"]: (node["metadata"].get("labels") or {}).get(HOSTNAME) for node in nodes}
    return {node: host for node, host in hosts.items() if host}


def read_fabric_groups(api: KubernetesApi) -> tuple[Group, ...]:
    """Groups of the network, by the labels of the nodes; nodes without these labels are in none.

    Raises:
        ApiForbidden: This account may not list nodes.
        ConfigError: No node has such a label, or the labels contradict each other.
    """
    located = read_locations(api, by_host=True)
    groups = read_groups(located)
    if not groups:
        known = ", ".join(family[0] for family in FAMILIES[:3])
        raise ConfigError(
            f"wanted nodes with a label that names their group, as {known}, found none on {len(located)} nodes; label "
            "the nodes with gangline/fabric-group, or state the groups in fabric.toml"
        )
    return groups


def survey_servers(
    nodes: Sequence[Object], pods: Iterable[Object] | None, *, fabric: Fabric | None = None
) -> tuple[ServerFacts, ...]:
    """Servers of these nodes with the requests of `pods`; None: this account may not list pods.

    Where no node has a label of the network, `fabric` says which servers share a group.
    """
    requested, permanent = _requests(pods or ())
    locations = locate(_node_labels(node) for node in nodes)
    if fabric is not None and not any(location.group for location in locations.values()):
        locations = _stated(nodes, fabric)
    duplicate_hosts = _duplicate_hosts(nodes)
    servers = [
        _server(
            node,
            locations[node["metadata"]["name"]],
            requested,
            permanent,
            duplicate_hosts,
            are_pods_known=pods is not None,
        )
        for node in nodes
    ]
    return tuple(sorted(servers, key=lambda server: (natural_key(server.name), server.node)))


def refusal(server: ServerFacts, selector: Mapping[str, str], tolerations: Iterable[Mapping[str, Any]]) -> str:
    """Why this server accepts no pod with `selector` and `tolerations`, of whatever size; empty: it does."""
    if server.unusable_reason:
        return server.unusable_reason
    for key, value in selector.items():
        if server.labels.get(key) != value:
            return f"lacks the label {key}={value}"
    tolerated = list(tolerations)
    for taint in server.taints:
        if taint.get("effect") != "PreferNoSchedule" and not any(_tolerates(each, taint) for each in tolerated):
            return f"has the taint {taint.get('key')}"
    return ""


def _stated(nodes: Iterable[Object], fabric: Fabric) -> dict[str, Location]:
    """Location of each node by the host name that `fabric` lists; of one that it does not list, none."""
    groups = fabric.by_server
    found = {}
    for node in nodes:
        name = node["metadata"]["name"]
        group = groups.get((node["metadata"].get("labels") or {}).get(HOSTNAME) or name)
        found[name] = Location() if group is None else Location(group=group.name, block=group.block)
    return found


def _server(
    node: Object,
    location: Location,
    requested: Mapping[str, Amounts],
    permanent: Mapping[str, Amounts],
    duplicate_hosts: frozenset[str],
    *,
    are_pods_known: bool,
) -> ServerFacts:
    name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
    spec, allocatable = node.get("spec") or {}, read_amounts((node.get("status") or {}).get("allocatable"))
    host = labels.get(HOSTNAME, "")
    return ServerFacts(
        name=host or name,
        node=name,
        group=location.group,
        block=location.block,
        labels=labels,
        taints=tuple(spec.get("taints") or ()),
        allocatable=allocatable,
        free=subtract(allocatable, requested.get(name, {})),
        permanent=permanent.get(name, {}),
        unusable_reason=_why_not(spec, host, duplicate_hosts),
        are_pods_known=are_pods_known,
    )


def _why_not(spec: Object, host: str, duplicate_hosts: frozenset[str]) -> str:
    if spec.get("unschedulable"):
        return "is cordoned"
    if not host:
        return f"lacks the label {HOSTNAME}, by which pods are bound"
    return f"shares its host name label {host} with another node" if host in duplicate_hosts else ""


def _duplicate_hosts(nodes: Iterable[Object]) -> frozenset[str]:
    hosts = Counter((node["metadata"].get("labels") or {}).get(HOSTNAME) for node in nodes)
    return frozenset(host for host, number in hosts.items() if host and number > 1)


def _node_labels(node: Object) -> NodeLabels:
    metadata = node["metadata"]
    leaves = (metadata.get("annotations") or {}).get(LEAVES, "")
    return NodeLabels(
        node=metadata["name"],
        labels=metadata.get("labels") or {},
        leaves=frozenset(leaf.strip() for leaf in leaves.split(",") if leaf.strip()),
    )


def _requests(pods: Iterable[Object]) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]:
    """Requests by node name: of all pods, and of those that no job made."""
    requested: dict[str, dict[str, int]] = {}
    permanent: dict[str, dict[str, int]] = {}
    for pod in pods:
        node = (pod.get("spec") or {}).get("nodeName")
        if not node or is_over(pod):
            continue
        needs = pod_needs(pod["spec"])
        requested[node] = add(requested.get(node, {}), needs)
        if not _will_end(pod):
            permanent[node] = add(permanent.get(node, {}), needs)
    return requested, permanent


def _will_end(pod: Object) -> bool:
    metadata = pod["metadata"]
    owners = {owner.get("kind") for owner in metadata.get("ownerReferences") or ()}
    return "Job" in owners or GANG in (metadata.get("labels") or {})


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """The rule of Kubernetes: no effect matches all effects, and `Exists` without a key matches all keys."""
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    key, exists = toleration.get("key") or "", toleration.get("operator") == "Exists"
    if not key:
        return exists
    return key == taint.get("key") and (exists or (toleration.get("value") or "") == (taint.get("value") or ""))


def locate_servers(
    api: KubernetesApi, names: Sequence[str], *, levels: Sequence[str] = (), by_host: bool = False
) -> tuple[tuple[PlacedServer, ...], str]:
    """`names` with their groups, and why the group of one is not known; empty: all are.

    Args:
        api: Of the cluster.
        names: Of servers.
        levels: As those of `read_locations`, as is `by_host`.
        by_host: Whether `names` are host name labels, not names of nodes.

    Raises:
        ConfigError: The labels contradict each other.
    """
    try:
        locations = read_locations(api, levels=levels, by_host=by_host)
    except ApiForbidden:
        unknown = "this account may not list nodes (gangline-reader)"
        return tuple(PlacedServer(name=name) for name in names), unknown
    found = {name: locations[name] for name in names if name in locations and locations[name].group}
    servers = tuple(
        PlacedServer(name=name, group=found[name].group, block=found[name].block)
        if name in found
        else PlacedServer(name=name)
        for name in names
    )
    lacking = sorted(set(names) - found.keys())
    more = f", nor have {len(lacking) - 1} more" if len(lacking) > 1 else ""
    return servers, f"{lacking[0]} has no label of the network{more}" if lacking else ""


class ObservedServers:
    """Follows the servers of one gang of several pods."""

    def __init__(self, api: KubernetesApi, *, num_nodes: int) -> None:
        self.servers: tuple[PlacedServer, ...] = ()
        """Servers in node-rank order; empty: not all are bound yet, or a group of theirs is not known."""
        self.unknown = ""
        """Why a group is not known; empty: all are, or nothing was read yet."""
        self._api, self._num_nodes = api, num_nodes
        self._nodes: tuple[str, ...] = ()

    def is_due(self, pods: Iterable[Object]) -> bool:
        """Whether all pods are bound, and not as they were at the last look."""
        nodes = _nodes(pods)
        return self._num_nodes > 1 and len(nodes) == self._num_nodes and nodes != self._nodes

    def look(self, pods: Iterable[Object], *, levels: Sequence[str] = ()) -> None:
        """Read the labels of the nodes, of the network or of `levels` as `locate_servers` takes them.

        Raises:
            ConfigError: The labels contradict each other.
        """
        self._nodes, self.servers, self.unknown = _nodes(pods), (), ""
        servers, self.unknown = locate_servers(self._api, self._nodes, levels=levels)
        self.servers = () if self.unknown else servers


def _nodes(pods: Iterable[Object]) -> tuple[str, ...]:
    """Node of each rank, in their order; those of ranks without one are left out."""
    found = {node_rank(pod): (pod.get("spec") or {}).get("nodeName") for pod in sorted(pods, key=is_living)}
    return tuple(str(found[rank]) for rank in sorted(found) if found[rank])
