"""Groups of the servers of a gang, by the labels of their nodes; `ObservedServers` follows where its pods are bound."""

from collections.abc import Iterable, Sequence

from gangline.launch.kubernetes.client.api import ApiForbidden, KubernetesApi, Object
from gangline.launch.kubernetes.placement.servers import read_locations
from gangline.launch.kubernetes.state.pods import is_living, node_rank
from gangline.spec.gang.podset import PlacedServer


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
