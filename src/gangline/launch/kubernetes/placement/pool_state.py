"""Snapshot of one pool of servers: what is free on each after all running pods and all reservations."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from gangline.fabric.placement.shortage import Holder
from gangline.fabric.topology.inventory import Fabric
from gangline.launch.kubernetes.client.api import ApiForbidden, KubernetesApi, Object
from gangline.launch.kubernetes.objects.labels import GANG
from gangline.launch.kubernetes.placement.gang_request import GangRequest
from gangline.launch.kubernetes.placement.queued_gangs import read_time
from gangline.launch.kubernetes.placement.reservations import PlacementLedger, Reservation
from gangline.launch.kubernetes.placement.resources import Amounts, add, num_fitting, pod_needs, subtract
from gangline.launch.kubernetes.placement.server_selection import ServerCapacity
from gangline.launch.kubernetes.placement.servers import NODES, PODS, ServerFacts, refusal, survey_servers
from gangline.launch.kubernetes.state.pods import is_over, pods_path
from gangline.spec.gang.podset import PlacedServer

_NEW_SECONDS = 120.0
"""How long a new reservation of another namespace counts although it has no pods yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolState:
    """Servers of one pool, and what runs or is reserved there, at one time."""

    servers: Mapping[str, ServerFacts]
    bound: Mapping[tuple[str, str], Amounts]
    """Requests of bound pods by (gang, server); a gang of another namespace is `NAMESPACE.GANG`."""
    living: frozenset[str] | None
    """Gangs of other namespaces that have pods; None: this account may not list them."""
    at: datetime
    """Time of the read."""

    def capacities(
        self, request: GangRequest, ledger: PlacementLedger, *, refused: Mapping[str, str] | None = None
    ) -> tuple[ServerCapacity, ...]:
        """Pods of `request` each server takes next to the reservations of `ledger`; 0 on the servers of `refused`."""
        reserved = ledger.outstanding(self.bound, counts=self.counts)
        return tuple(
            _capacity(each, request, reserved.get(each.name, {}), refused or {}) for each in self.servers.values()
        )

    def holders(self, request: GangRequest, ledger: PlacementLedger) -> list[Holder]:
        """Gangs of this namespace with reservations, and the pods of `request` for which their end makes room."""
        reserved = ledger.outstanding(self.bound, counts=self.counts)
        found = []
        for name, reservation in ledger.reservations.items():
            places = {
                server: self._freed(server, number, reservation, request, reserved.get(server, {}))
                for server, number in Counter(reservation.servers).items()
                if server in self.servers
            }
            found.append(Holder(name=name, places=places))
        return found

    def _freed(self, name: str, number: int, reservation: Reservation, request: GangRequest, reserved: Amounts) -> int:
        """Pods of `request` that a server takes in addition, once `number` pods of `reservation` are gone."""
        server = self.servers[name]
        if refusal(server, request.selector, request.tolerations):
            return 0
        now = subtract(server.free, reserved)
        then = add(now, {resource: amount * number for resource, amount in reservation.need.items()})
        return num_fitting(then, request.need) - num_fitting(now, request.need)

    def where(self, name: str) -> PlacedServer:
        """Position of a server in the network; without group and block if it is gone."""
        found = self.servers.get(name)
        return PlacedServer(name=name, group=found.group, block=found.block) if found else PlacedServer(name=name)

    def counts(self, gang: str, reservation: Reservation) -> bool:
        """Whether a reservation of another namespace still counts; its own placer may remove it late or never."""
        is_new = not reservation.whole and (self.at - read_time(reservation.since)).total_seconds() < _NEW_SECONDS
        return is_new or self.living is None or gang in self.living


def read_pool_state(api: KubernetesApi, pool: str, *, at: datetime, fabric: Fabric | None = None) -> PoolState:
    """Servers of `pool`, with the pods of all namespaces if this account may list them.

    Args:
        api: Of the cluster.
        pool: Its name; empty: servers in none.
        at: The time of it.
        fabric: As it is stated, for servers without labels of the network.

    Raises:
        ApiForbidden: This account may not list nodes.
    """
    nodes = api.items(NODES)[0]
    try:
        pods, all_seen = api.items(PODS)[0], True
    except ApiForbidden:  # then only our own are seen; a server that others fill refuses, and is remembered
        pods, all_seen = api.items(pods_path(api))[0], False
    everyone = survey_servers(nodes, pods, fabric=fabric)
    bound, living = _gangs(pods, {each.node: each.name for each in everyone}, namespace=api.namespace)
    servers = {each.name: each for each in everyone if each.pool == pool}
    return PoolState(servers=servers, bound=bound, living=living if all_seen else None, at=at)


def _gangs(
    pods: list[Object], hosts: Mapping[str, str], *, namespace: str
) -> tuple[dict[tuple[str, str], Amounts], frozenset[str]]:
    """Requests of bound pods by gang and server, and the gangs of other namespaces that have pods."""
    bound: dict[tuple[str, str], Amounts] = {}
    living = set()
    for pod in pods:
        metadata, node = pod["metadata"], pod["spec"].get("nodeName")
        gang = (metadata.get("labels") or {}).get(GANG)
        if gang is None or is_over(pod):
            continue
        if metadata.get("namespace") != namespace:
            gang = f"{metadata.get('namespace')}.{gang}"
            living.add(gang)
        if node in hosts:
            bound[gang, hosts[node]] = add(bound.get((gang, hosts[node]), {}), pod_needs(pod["spec"]))
    return bound, frozenset(living)


def _capacity(
    server: ServerFacts, request: GangRequest, reserved: Amounts, refused: Mapping[str, str]
) -> ServerCapacity:
    never = refusal(server, request.selector, request.tolerations)
    why = never or refused.get(server.name, "")
    return ServerCapacity(
        server=server,
        pods=0 if why else num_fitting(subtract(server.free, reserved), request.need),
        pods_empty=0 if never else num_fitting(subtract(server.allocatable, server.permanent), request.need),
        refuses=why,
    )
