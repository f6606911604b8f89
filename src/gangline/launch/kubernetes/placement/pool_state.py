"""One pool of servers at one moment: what is free on each after all running pods and all reservations."""

from collections.abc import Mapping
from dataclasses import dataclass

from gangline.launch.kubernetes.client.api import ApiForbidden, KubernetesApi, Object
from gangline.launch.kubernetes.objects.render_context import GANG
from gangline.launch.kubernetes.placement.gang_request import GangRequest
from gangline.launch.kubernetes.placement.ledger import PlacementLedger
from gangline.launch.kubernetes.placement.resources import Amounts, add, pod_needs, slots, subtract
from gangline.launch.kubernetes.placement.server_selection import ServerCapacity
from gangline.launch.kubernetes.placement.servers import NODES, PODS, ServerFacts, refusal, survey
from gangline.launch.kubernetes.state.pods import is_over, pods_path
from gangline.spec.gang.podset import PlacedServer


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolState:
    servers: Mapping[str, ServerFacts]
    bound: Mapping[tuple[str, str], Amounts]
    """Requests of the pods of (gang, server) that are bound there."""

    def rooms(
        self, wanted: GangRequest, ledger: PlacementLedger, *, refused: Mapping[str, str] | None = None
    ) -> tuple[ServerCapacity, ...]:
        """How many pods of `wanted` each server takes beside all promises of `ledger`; none where it refused before."""
        promised = ledger.outstanding(self.bound)
        return tuple(_room(each, wanted, promised.get(each.name, {}), refused or {}) for each in self.servers.values())

    def where(self, name: str) -> PlacedServer:
        """A server that is gone hangs nowhere."""
        found = self.servers.get(name)
        return PlacedServer(name=name, group=found.group, block=found.block) if found else PlacedServer(name=name)


def read_pool_state(api: KubernetesApi, pool: str) -> PoolState:
    """The servers of `pool` beside the pods of everybody.

    Raises:
        Denied: This account may not list nodes.
    """
    nodes = api.items(NODES)[0]
    try:
        pods = api.items(PODS)[0]
    except ApiForbidden:  # then only our own are seen; a server that others fill refuses, and is remembered
        pods = api.items(pods_path(api))[0]
    return pool_state_of(nodes, pods, namespace=api.namespace, pool=pool)


def pool_state_of(nodes: list[Object], pods: list[Object], *, namespace: str, pool: str) -> PoolState:
    everyone = survey(nodes, pods)
    hosts = {each.node: each.name for each in everyone}
    bound: dict[tuple[str, str], Amounts] = {}
    for pod in pods:
        metadata, node = pod["metadata"], pod["spec"].get("nodeName")
        gang = (metadata.get("labels") or {}).get(GANG)
        if gang is None or metadata.get("namespace") != namespace:
            continue
        if node in hosts and not is_over(pod):
            key = gang, hosts[node]
            bound[key] = add(bound.get(key, {}), pod_needs(pod["spec"]))
    servers = {each.name: each for each in everyone if each.pool == pool}
    return PoolState(servers=servers, bound=bound)


def _room(server: ServerFacts, wanted: GangRequest, promised: Amounts, refused: Mapping[str, str]) -> ServerCapacity:
    never = refusal(server, wanted.selector, wanted.tolerations)
    why = never or refused.get(server.name, "")
    return ServerCapacity(
        server=server,
        pods=0 if why else slots(subtract(server.free, promised), wanted.need),
        pods_empty=0 if never else slots(subtract(server.allocatable, server.standing), wanted.need),
        refuses=why,
    )
