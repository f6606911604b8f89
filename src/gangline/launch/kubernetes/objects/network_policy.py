"""Network policy of a gang: it reaches its own pods, name servers and its store; its pods and monitoring reach it.

A policy knows addresses, namespaces and labels, but no external names: a store with a name outside the cluster is
reached by its port, at any address but those of the API server and of link-local services (cloud metadata).
"""

import ipaddress
from urllib.parse import parse_qs, urlsplit

from gangline.errors import ConfigError
from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.objects.labels import GANG, collection_path
from gangline.launch.kubernetes.objects.render_context import RenderContext, metadata

GROUP_VERSION = "networking.k8s.io/v1"
MONITORING_NAMESPACES = ("monitoring",)
DNS_NAMESPACES = ("kube-system", "openshift-dns")
DNS_PORTS = (53, 5353)
"""Policies see the port of the pod, and OpenShift's name servers listen on 5353."""
NODE_LOCAL_DNS = "169.254.20.10/32"
LINK_LOCAL = ("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128")
"""Where clouds serve credentials of the server itself."""


def network_policies_path(namespace: str) -> str:
    return collection_path(GROUP_VERSION, "networkpolicies", namespace)


def network_policy(context: RenderContext) -> Object:
    """Over the default deny of the namespace; policies only ever add."""
    own = [{"podSelector": {"matchLabels": {GANG: context.podset.name}}}]
    ingress: list[Object] = [{"from": own}]
    if context.metrics_ports:
        ports = [_tcp(context.metrics_ports[0], last=context.metrics_ports[-1])]
        ingress.append({"from": [_namespaces(MONITORING_NAMESPACES)], "ports": ports})
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "NetworkPolicy",
        "metadata": metadata(context),
        "spec": {
            "podSelector": {"matchLabels": {GANG: context.podset.name}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": [{"to": own}, _dns(), _store(context)],
        },
    }


def _dns() -> Object:
    ports = [{"port": port, "protocol": protocol} for port in DNS_PORTS for protocol in ("UDP", "TCP")]
    return {"to": [_namespaces(DNS_NAMESPACES), {"ipBlock": {"cidr": NODE_LOCAL_DNS}}], "ports": ports}


def _store(context: RenderContext) -> Object:
    host, port = store_address(context.podset.store)
    return {"to": _peers(host, context), "ports": [_tcp(port)]}


def store_address(url: str) -> tuple[str, int]:
    """Host and port behind a store's URL.

    Raises:
        ConfigError: It names no server that pods could reach.
    """
    endpoint = parse_qs(urlsplit(url).query).get("endpoint", [""])[0]
    parts = urlsplit(endpoint)
    if not url.startswith("s3://") or not parts.hostname:
        raise ConfigError(
            f"store of a gang on a cluster: wanted s3://bucket/prefix?endpoint=https://host:port, found {url!r};"
            " set store.url and store.endpoint (or store.cluster_endpoint) in site.toml"
        )
    return parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def _peers(host: str, context: RenderContext) -> list[Object]:
    """Who may stand behind `host`."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return _peers_by_name(host, context.facts.api_addresses)
    return [{"ipBlock": {"cidr": str(ipaddress.ip_network(address))}}]


def _peers_by_name(host: str, api_addresses: tuple[str, ...]) -> list[Object]:
    """`service`, `service.namespace`, `service.namespace.svc[.…]`; else, or with a dot at its end, a name outside."""
    parts = host.rstrip(".").split(".")
    is_absolute = host.endswith(".")
    if len(parts) == 1 and not is_absolute:
        return [{"podSelector": {}}]
    if (len(parts) == 2 and not is_absolute) or parts[2:3] == ["svc"]:
        return [_namespaces((parts[1],))]
    forbidden = [str(ipaddress.ip_network(each)) for each in (*LINK_LOCAL, *api_addresses)]
    return [_all_but("0.0.0.0/0", forbidden), _all_but("::/0", forbidden)]


def _all_but(everything: str, forbidden: list[str]) -> Object:
    kind = ":" in everything
    inside = sorted(each for each in forbidden if (":" in each) == kind)
    return {"ipBlock": {"cidr": everything, "except": inside}}


def _namespaces(names: tuple[str, ...]) -> Object:
    wanted = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(names)}
    return {"namespaceSelector": {"matchExpressions": [wanted]}}


def _tcp(port: int, *, last: int | None = None) -> Object:
    through = {"endPort": last} if last is not None and last > port else {}
    return {"port": port, "protocol": "TCP"} | through
