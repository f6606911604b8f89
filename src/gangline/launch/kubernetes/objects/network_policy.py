"""Network policy of a gang: what it reaches, and that its pods, monitoring and members of its federation reach it.

It reaches its own pods, name servers, its store, the sources of its data and the trackers that its program joins.

A policy knows addresses, namespaces and labels, but no external names: a store with a name outside the cluster is
reached by its port, at any address but those of the API server and of link-local services (cloud metadata).
"""

import ipaddress
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

from gangline.errors import ConfigError
from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.objects.labels import GANG
from gangline.launch.kubernetes.objects.render_context import RenderContext, metadata
from gangline.spec.gang.driver_orders import SHARDS_KEY, ShardAccess, coordinator_of
from gangline.spec.gang.podset import TRACKERS_KEY

_GROUP_VERSION = "networking.k8s.io/v1"
_MONITORING_NAMESPACES = ("monitoring",)
_DNS_NAMESPACES = ("kube-system", "openshift-dns")
_DNS_PORTS = (53, 5353)
"""Policies match the port of the pod; OpenShift's name servers listen on 5353."""
_NODE_LOCAL_DNS = "169.254.20.10/32"
_LINK_LOCAL = ("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128")
"""Addresses at which clouds serve the credentials of a server."""


def network_policy(context: RenderContext) -> Object:
    """Allow rules on top of the namespace's default deny; policies only add."""
    own = [{"podSelector": {"matchLabels": {GANG: context.podset.name}}}]
    ingress: list[Object] = [{"from": own}]
    if context.metrics_ports:
        ports = [_tcp(context.metrics_ports[0], last=context.metrics_ports[-1])]
        ingress.append({"from": [_namespaces(_MONITORING_NAMESPACES)], "ports": ports})
    if pod := coordinator_of(context.podset.env):
        ingress.append({"ports": [_tcp(pod.port)]})  # members are anywhere; their certificates let them in
    return {
        "apiVersion": _GROUP_VERSION,
        "kind": "NetworkPolicy",
        "metadata": metadata(context),
        "spec": {
            "podSelector": {"matchLabels": {GANG: context.podset.name}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": [{"to": own}, _dns(), _store(context), *_trackers(context), *_sources(context)],
        },
    }


def _dns() -> Object:
    ports = [{"port": port, "protocol": protocol} for port in _DNS_PORTS for protocol in ("UDP", "TCP")]
    return {"to": [_namespaces(_DNS_NAMESPACES), {"ipBlock": {"cidr": _NODE_LOCAL_DNS}}], "ports": ports}


def _store(context: RenderContext) -> Object:
    host, port = store_address(context.podset.store)
    return {"to": _peers(host, context), "ports": [_tcp(port)]}


def _trackers(context: RenderContext) -> Iterator[Object]:
    """Trackers of the site; a line cannot set the variable."""
    for word in context.podset.env.get(TRACKERS_KEY, "").split():
        parts = urlsplit(word.partition("=")[2])
        if parts.hostname:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            yield {"to": _peers(parts.hostname, context), "ports": [_tcp(port)]}


def _sources(context: RenderContext) -> Iterator[Object]:
    """Sources that ranks read in place, and the hosts that they redirect to; a line cannot set the variable."""
    access = ShardAccess.from_json(context.podset.env.get(SHARDS_KEY, "{}"))
    for table in access.sources.values():
        if table.url.startswith("s3://"):
            yield {"to": _peers(store_address(table.url)[0], context), "ports": [_tcp(store_address(table.url)[1])]}
            continue
        parts = urlsplit(table.url)
        port = parts.port or {"https": 443, "http": 80, "webhdfs": 50_070, "swebhdfs": 50_070}.get(parts.scheme)
        own = [f"{parts.hostname}:{port}"] if parts.hostname and port else []
        for host, _, number in (each.rpartition(":") for each in (*own, *table.hosts)):
            yield {"to": _peers(host, context), "ports": [_tcp(int(number))]}


def store_address(url: str) -> tuple[str, int]:
    """Host and port of the S3 endpoint in a store's URL.

    Raises:
        ConfigError: The URL has no endpoint that pods can reach.
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
    """NetworkPolicy peers for `host`."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return _peers_by_name(host, context.facts.api_addresses)
    return [{"ipBlock": {"cidr": str(ipaddress.ip_network(address))}}]


def _peers_by_name(host: str, api_addresses: tuple[str, ...]) -> list[Object]:
    """`service`, `service.namespace`, `service.namespace.svc[.…]`; other names or a final dot: an external name."""
    parts = host.rstrip(".").split(".")
    is_absolute = host.endswith(".")
    if len(parts) == 1 and not is_absolute:
        return [{"podSelector": {}}]
    if (len(parts) == 2 and not is_absolute) or parts[2:3] == ["svc"]:
        return [_namespaces((parts[1],))]
    forbidden = [str(ipaddress.ip_network(each)) for each in (*_LINK_LOCAL, *api_addresses)]
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
