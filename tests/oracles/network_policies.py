"""Would these NetworkPolicies let a packet through? The rules of `networking.k8s.io/v1`, without a network.

A connection passes where the policies of its source allow it out and those of its target allow it in; whoever no policy
selects is open. Where implementations differ (an `ipBlock` that holds the address of a pod), the wider answer counts.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gangline.errors import ConfigError
from gangline.launch.kubernetes.client.api import Object

Direction = Literal["Ingress", "Egress"]
NAMESPACE_NAME = "kubernetes.io/metadata.name"


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """A pod; without a namespace an address outside: a server's own, or another network's."""

    ip: str
    namespace: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    """Beside the name, which every namespace carries."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """Number by name, for policies that name ports."""


def allowed(
    source: Endpoint, target: Endpoint, port: int, policies: Iterable[Object], *, protocol: str = "TCP"
) -> bool:
    """May `source` open a connection to `port` of `target`?

    Args:
        source: Who asks.
        target: Whom; the pod behind a Service, as policies see it.
        port: Of the pod.
        policies: Of all namespaces.
        protocol: TCP, UDP or SCTP.

    Raises:
        ConfigError: A policy holds a selector that Kubernetes does not know.
    """
    known = tuple(policies)
    packet = _Packet(source=source, target=target, port=port, protocol=protocol)
    return _passes(packet, known, "Egress") and _passes(packet, known, "Ingress")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Packet:
    source: Endpoint
    target: Endpoint
    port: int
    protocol: str


def _passes(packet: _Packet, policies: tuple[Object, ...], direction: Direction) -> bool:
    here, there = (packet.source, packet.target) if direction == "Egress" else (packet.target, packet.source)
    selecting = list(_selecting(here, policies, direction))
    return not selecting or any(_has_rule(policy, packet, there, direction) for policy in selecting)


def _selecting(endpoint: Endpoint, policies: tuple[Object, ...], direction: Direction) -> Iterator[Object]:
    """Policies that bind `endpoint` in this direction."""
    for policy in policies:
        spec = policy["spec"]
        if (
            policy["metadata"].get("namespace") == endpoint.namespace is not None
            and direction in _directions(spec)
            and _matches(spec.get("podSelector") or {}, endpoint.labels)
        ):
            yield policy


def _directions(spec: Object) -> tuple[str, ...]:
    """As the server fills them in."""
    return tuple(spec.get("policyTypes") or ("Ingress", *(["Egress"] if "egress" in spec else [])))


def _has_rule(policy: Object, packet: _Packet, there: Endpoint, direction: Direction) -> bool:
    rules, peers = ("ingress", "from") if direction == "Ingress" else ("egress", "to")
    return any(
        _any_peer(rule.get(peers) or [], there, policy["metadata"]["namespace"])
        and _any_port(rule.get("ports") or [], packet)
        for rule in policy["spec"].get(rules) or ()
    )


def _any_peer(peers: list[Object], there: Endpoint, namespace: str) -> bool:
    """No peers: everybody."""
    return not peers or any(_is_peer(peer, there, namespace) for peer in peers)


def _is_peer(peer: Object, there: Endpoint, namespace: str) -> bool:
    if "ipBlock" in peer:
        return _in_block(peer["ipBlock"], there.ip)
    if there.namespace is None:
        return False
    if peer.get("namespaceSelector") is None:
        in_namespace = there.namespace == namespace
    else:
        labels = {**there.namespace_labels, NAMESPACE_NAME: there.namespace}
        in_namespace = _matches(peer["namespaceSelector"], labels)
    return in_namespace and _matches(peer.get("podSelector") or {}, there.labels)


def _in_block(block: Object, ip: str) -> bool:
    address = ipaddress.ip_address(ip)
    excepted = any(address in ipaddress.ip_network(each) for each in block.get("except") or ())
    return address in ipaddress.ip_network(block["cidr"]) and not excepted


def _any_port(ports: list[Object], packet: _Packet) -> bool:
    """No ports: all of them."""
    return not ports or any(_is_port(each, packet) for each in ports)


def _is_port(wanted: Object, packet: _Packet) -> bool:
    if wanted.get("protocol", "TCP") != packet.protocol:
        return False
    first = wanted.get("port")
    if first is None:
        return True
    if isinstance(first, str):
        return packet.target.ports.get(first) == packet.port
    last: int = wanted.get("endPort") or first
    return bool(first <= packet.port <= last)


def _matches(selector: Object, labels: Mapping[str, str]) -> bool:
    """An empty selector is everything."""
    plain = all(labels.get(name) == value for name, value in (selector.get("matchLabels") or {}).items())
    return plain and all(_meets(each, labels) for each in selector.get("matchExpressions") or ())


def _meets(expression: Object, labels: Mapping[str, str]) -> bool:
    value: Any = labels.get(expression["key"])
    match expression["operator"]:
        case "In":
            return value in expression["values"]
        case "NotIn":
            return value not in expression["values"]
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case other:
            raise ConfigError(f"selector: wanted In, NotIn, Exists or DoesNotExist, found operator {other!r}")
