"""One pool of servers at one moment: what is free on each, beside the pods of everybody and what is promised."""

from collections.abc import Mapping
from dataclasses import dataclass

from gangline.launch.kubernetes.api.protocol import Api, Denied, Object
from gangline.launch.kubernetes.objects.setting import GANG
from gangline.launch.kubernetes.placing.amounts import Amounts, add, pod_needs, slots, subtract
from gangline.launch.kubernetes.placing.choose_servers import Room
from gangline.launch.kubernetes.placing.ledger import Ledger
from gangline.launch.kubernetes.placing.servers import NODES, PODS, ServerFacts, refusal, survey
from gangline.launch.kubernetes.placing.wanted import Wanted
from gangline.launch.kubernetes.pods import is_over, pods_path
from gangline.spec.placement import Server


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet:
    servers: Mapping[str, ServerFacts]
    bound: Mapping[tuple[str, str], Amounts]
    """Requests of the pods of (gang, server) that are bound there."""

    def rooms(self, wanted: Wanted, ledger: Ledger, *, refused: Mapping[str, str] | None = None) -> tuple[Room, ...]:
        """How many pods of `wanted` each server takes beside all promises of `ledger`; none where it refused before."""
        promised = ledger.outstanding(self.bound)
        return tuple(_room(each, wanted, promised.get(each.name, {}), refused or {}) for each in self.servers.values())

    def where(self, name: str) -> Server:
        """A server that is gone hangs nowhere."""
        found = self.servers.get(name)
        return Server(name=name, group=found.group, block=found.block) if found else Server(name=name)


def read_fleet(api: Api, pool: str) -> Fleet:
    """The servers of `pool` beside the pods of everybody.

    Raises:
        Denied: This account may not list nodes.
    """
    nodes = api.items(NODES)[0]
    try:
        pods = api.items(PODS)[0]
    except Denied:  # then only our own are seen; a server that others fill refuses, and is remembered
        pods = api.items(pods_path(api))[0]
    return fleet_of(nodes, pods, namespace=api.namespace, pool=pool)


def fleet_of(nodes: list[Object], pods: list[Object], *, namespace: str, pool: str) -> Fleet:
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
    return Fleet(servers=servers, bound=bound)


def _room(server: ServerFacts, wanted: Wanted, promised: Amounts, refused: Mapping[str, str]) -> Room:
    never = refusal(server, wanted.selector, wanted.tolerations)
    why = never or refused.get(server.name, "")
    return Room(
        server=server,
        pods=0 if why else slots(subtract(server.free, promised), wanted.need),
        pods_empty=0 if never else slots(subtract(server.allocatable, server.standing), wanted.need),
        refuses=why,
    )
