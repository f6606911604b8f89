"""Servers of a gang that another scheduler placed: the nodes of its pods, with groups by their labels."""

from collections.abc import Iterable

from gangline.launch.kubernetes.client.api import ApiForbidden, KubernetesApi, Object
from gangline.launch.kubernetes.placement.servers import read_locations
from gangline.launch.kubernetes.state.pods import is_living, node_rank
from gangline.spec.gang.podset import PlacedServer


class ObservedServers:
    """Follows the servers of one gang of several pods."""

    def __init__(self, api: KubernetesApi, *, num_nodes: int) -> None:
        self.servers: tuple[PlacedServer, ...] = ()
        """In node-rank order; empty: not all are bound yet, or a group of theirs is not known."""
        self.unknown = ""
        """Why a group is not known; empty: all are, or nothing was read yet."""
        self._api, self._num_nodes = api, num_nodes
        self._nodes: tuple[str, ...] = ()

    def is_due(self, pods: Iterable[Object]) -> bool:
        """Whether all pods are bound, and not as they were at the last look."""
        nodes = _nodes(pods)
        return self._num_nodes > 1 and len(nodes) == self._num_nodes and nodes != self._nodes

    def look(self, pods: Iterable[Object]) -> None:
        """Read the labels of the nodes. Raises `ConfigError` if they contradict each other."""
        self._nodes, self.servers, self.unknown = _nodes(pods), (), ""
        try:
            locations = read_locations(self._api)
        except ApiForbidden:
            self.unknown = "this account may not list nodes (gangline-reader)"
            return
        found = {name: locations[name] for name in self._nodes if name in locations and locations[name].group}
        if lacking := sorted(set(self._nodes) - found.keys()):
            more = f", nor have {len(lacking) - 1} more" if len(lacking) > 1 else ""
            self.unknown = f"{lacking[0]} has no label of the network{more}"
        else:
            self.servers = tuple(
                PlacedServer(name=name, group=found[name].group, block=found[name].block) for name in self._nodes
            )


def _nodes(pods: Iterable[Object]) -> tuple[str, ...]:
    """Node of each rank, in their order; those of ranks without one are left out."""
    found = {node_rank(pod): (pod.get("spec") or {}).get("nodeName") for pod in sorted(pods, key=is_living)}
    return tuple(str(found[rank]) for rank in sorted(found) if found[rank])
