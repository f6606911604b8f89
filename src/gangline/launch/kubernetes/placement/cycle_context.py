"""State of one scheduling cycle over a pool, and its few writes; `scheduling_cycle` and `release` decide.

Every write of a root is tested on what was read, so that of two placers one succeeds. The snapshot of the pool, what is
free on each server after all running pods and all reservations, is read when it is first needed: a cycle without work
reads neither nodes nor pods.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Literal

from gangline.fabric.placement.shortage import Holder
from gangline.fabric.topology.inventory import Fabric
from gangline.launch.kubernetes.client.api import ApiForbidden, KubernetesApi, Object
from gangline.launch.kubernetes.objects.labels import GANG, HOSTNAME, STARTS_NOW, WAITS
from gangline.launch.kubernetes.placement.gang_pods import GangPods, by_rank
from gangline.launch.kubernetes.placement.queued_gangs import GangRequest, QueuedGang, read_time
from gangline.launch.kubernetes.placement.reservations import PlacementLedger, Reservation, write_ledger
from gangline.launch.kubernetes.placement.resources import Amounts, add, num_fitting, pod_needs, subtract
from gangline.launch.kubernetes.placement.server_selection import ServerCapacity
from gangline.launch.kubernetes.placement.servers import NODES, PODS, ServerFacts, refusal, survey_servers
from gangline.launch.kubernetes.state.pods import is_over, list_pods, pods_path
from gangline.launch.kubernetes.state.roots import Root
from gangline.spec.gang.podset import PlacedServer

_REMEMBER_SECONDS = 600.0
"""How long a server that refused a gang is not offered to it again."""
_SPREAD_SECONDS = 120
"""Maximum addition to it, by the gang's name, so that two gangs do not try again at the same time."""

_PlacementEventKind = Literal["promised", "opened", "whole", "replaced", "refused", "dropped", "suspended", "waits"]

_NEW_SECONDS = 120.0
"""How long a new reservation of another namespace counts although it has no pods yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacementEvent:
    """What one pass did with a gang."""

    gang: str
    kind: _PlacementEventKind
    servers: tuple[str, ...] = ()
    sentence: str = ""


def write_waiting_reason(api: KubernetesApi, root: Root, sentence: str, starts_now: str = "") -> bool:
    """Write to the root why it waits, and which smaller gang would not; False: it had this already."""
    notes = {WAITS: sentence, STARTS_NOW: starts_now or None}
    if all(root.annotations.get(name) == text for name, text in notes.items()):
        return False
    api.patch(root.path, {"metadata": {"uid": root.uid, "annotations": notes}})
    return True


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
            _capacity(server, request, reserved.get(server.name, {}), refused or {}) for server in self.servers.values()
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
        server = self.servers.get(name)
        return PlacedServer(name=name, group=server.group, block=server.block) if server else PlacedServer(name=name)

    def counts(self, gang: str, reservation: Reservation) -> bool:
        """Whether a reservation of another namespace still counts; its own placer may remove it late or never."""
        is_new = not reservation.whole and (self.at - read_time(reservation.since)).total_seconds() < _NEW_SECONDS
        return is_new or self.living is None or gang in self.living


class CycleContext:
    """One pass over one pool; `events` lists what it did.

    Attributes:
        ledger: As last read or written by this pass.
    """

    def __init__(
        self, api: KubernetesApi, ledger: PlacementLedger, *, holder: str, now: datetime, fabric: Fabric | None = None
    ) -> None:
        self.api = api
        self.ledger = ledger
        self.holder = holder
        self.now = now
        self._fabric = fabric
        self.events: list[PlacementEvent] = []

    @cached_property
    def pool_state(self) -> PoolState:
        """Servers and pods of the pool, read on first use."""
        return read_pool_state(self.api, self.ledger.pool, at=self.now, fabric=self._fabric)

    @cached_property
    def nodes(self) -> dict[str, str]:
        """Names of node objects by unique host name; cheaper to read than `pool_state`."""
        found = [each["metadata"] for each in self.api.items(NODES, bare=True)[0]]
        hosts = [(each.get("labels") or {}).get(HOSTNAME, "") for each in found]
        number = Counter(hosts)
        return {host: str(each["name"]) for host, each in zip(hosts, found, strict=True) if number[host] == 1}

    def pods(self, gang: QueuedGang) -> GangPods:
        """Pods of the gang as of now."""
        return by_rank(list_pods(self.api, gang.name), gang.request.num_pods)

    def reserve(self, gang: QueuedGang, servers: tuple[str, ...], *, since: str, whole: bool = False) -> Reservation:
        """Reserve `servers` for the gang in the ledger."""
        need = dict(gang.request.need)
        made = Reservation(uid=gang.root.uid, servers=servers, need=need, since=since, by=self.holder, whole=whole)
        return self.put_reservation(gang, made)

    def put_reservation(self, gang: QueuedGang, reservation: Reservation) -> Reservation:
        """Store the reservation in the ledger if it differs; returns it."""
        if self.ledger.reservations.get(gang.name) != reservation:
            self.ledger = write_ledger(self.api, self.ledger.with_reservation(gang.name, reservation))
        return reservation

    def drop_reservations(self, names: Iterable[str]) -> None:
        """Remove the reservations of these gangs from the ledger."""
        gone = [name for name in names if name in self.ledger.reservations]
        if gone:
            self.ledger = write_ledger(self.api, self.ledger.without(gone))
            self.events += [PlacementEvent(gang=name, kind="dropped") for name in gone]

    def write_root(self, gang: QueuedGang, notes: Mapping[str, str | None], *, suspend: bool) -> None:
        """Write annotations and `suspend`. Raises `ApiConflict` if the root changed since it was read."""
        version = gang.root.object["metadata"]["resourceVersion"]
        metadata = {"uid": gang.root.uid, "resourceVersion": version, "annotations": dict(notes)}
        self.api.patch(gang.root.path, {"metadata": metadata, "spec": {"suspend": suspend}})

    def unsuspend(self, gang: QueuedGang, notes: Mapping[str, str | None]) -> None:
        """Resume the root, with its start time cleared: a Job's deadline would count from its earlier start.

        The controller checks the deadline before it sets the new start time. JobSets clear that of their Jobs.
        Raises `ApiConflict` as `write_root` does.
        """
        if (gang.root.object.get("status") or {}).get("startTime"):
            version = gang.root.object["metadata"]["resourceVersion"]
            forgotten = {"metadata": {"uid": gang.root.uid, "resourceVersion": version}, "status": {"startTime": None}}
            patch = self.api.patch(f"{gang.root.path}/status", forgotten)
            gang = replace(gang, root=Root(gang.root.path, patch or gang.root.object))
        self.write_root(gang, notes, suspend=False)

    def annotate(self, gang: QueuedGang, notes: Mapping[str, str | None]) -> None:
        """Set annotations of the root; None removes one."""
        self.api.patch(gang.root.path, {"metadata": {"uid": gang.root.uid, "annotations": dict(notes)}})

    def set_waiting_reason(self, gang: QueuedGang, sentence: str, *, starts_now: str = "") -> None:
        """Write why the gang waits to its root, and record an event if it changed."""
        if write_waiting_reason(self.api, gang.root, sentence, starts_now):
            self.add_event(gang, "waits", sentence=sentence)

    def add_event(
        self, gang: QueuedGang, kind: _PlacementEventKind, servers: tuple[str, ...] = (), *, sentence: str = ""
    ) -> None:
        """Record what this pass did with the gang."""
        self.events.append(PlacementEvent(gang=gang.name, kind=kind, servers=servers, sentence=sentence))

    def rejecting_servers(self, gang: QueuedGang) -> dict[str, str]:
        """Servers that recently did not take a pod of the gang, and why."""
        if gang.refusal is None:
            return {}
        spread = zlib.crc32(f"{self.api.namespace}/{gang.name}".encode()) % _SPREAD_SECONDS
        if self.age(gang.refusal.at) > _REMEMBER_SECONDS + spread:
            return {}
        return gang.refusal.servers

    def age(self, time: str) -> float:
        """Seconds since `time`."""
        return (self.now - read_time(time)).total_seconds()


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
