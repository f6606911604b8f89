"""Check of the addresses that an outgoing request may dial: forges, git, image registries, pipeline servers.

Private networks are for servers that the site names, and so is this machine, if the site's URL names loopback; neither
is for public services, for what a line names, nor for redirects. Metadata services, link-local and reserved addresses
are refused.
"""

import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from gangline.errors import ConfigError, StorageError

Resolve = Callable[[str, int], Sequence[str]]
"""Addresses of a name, as text."""
_NAME = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*"
)
_PLAIN = re.compile(r"[\x21-\x7e]+")
_NAT64 = IPv6Network("64:ff9b::/96")
_GLOBAL_IPV6 = IPv6Network("2000::/3")
"""All other IPv6 addresses are private, special or not assigned yet."""
_PRIVATE = ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
_METADATA = (
    "168.63.129.16/32",  # Azure
    "100.100.100.200/32",  # Alibaba
    "fd00:ec2::/32",  # AWS
    "fd20:ce::254/128",  # Google
    "fd00:c1::a9fe:a9fe/128",  # Oracle
    "fd00:42::42/128",  # Scaleway
)
"""Outside of link-local networks, where most are."""
_SPECIAL = (
    "0.0.0.0/8",  # this network
    "169.254.0.0/16",  # link-local; metadata of most clouds
    "192.0.0.0/24",  # protocol assignments; metadata of Oracle
    "192.0.2.0/24",  # documentation
    "192.31.196.0/24",  # AS112
    "192.52.193.0/24",  # AMT
    "192.88.99.0/24",  # relays of 6to4
    "192.175.48.0/24",  # AS112
    "198.18.0.0/15",  # benchmarking
    "198.51.100.0/24",  # documentation
    "203.0.113.0/24",  # documentation
    "224.0.0.0/4",  # multicast
    "240.0.0.0/4",  # reserved, broadcast
    "2001::/23",  # protocol assignments: Teredo, benchmarking, ORCHID
    "2001:db8::/32",  # documentation
    "2002::/16",  # 6to4: any address of IPv4
    "2620:4f:8000::/48",  # AS112
    "3fff::/20",  # documentation
)


@dataclass(frozen=True, slots=True)
class Origin:
    """A server, and whether the site names it."""

    scheme: str
    host: str
    port: int
    path: str
    """Path without the slash at its end."""
    named_by_site: bool
    """Then it may be on a private network; or this machine, where the URL says so."""

    @property
    def is_loopback(self) -> bool:
        """The URL itself names this machine."""
        return is_loopback_name(self.host)

    @property
    def url(self) -> str:
        """URL in the form that people and git read."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = {"https": 443, "http": 80}[self.scheme]
        return f"{self.scheme}://{host}" + (f":{self.port}" if self.port != usual else "") + self.path


def read_origin(url: str, *, key: str, named_by_site: bool) -> Origin:
    """The server of `url`; `key` is the key of site.toml that holds it.

    Raises:
        ConfigError: Not an https URL (http for this machine) of a plain host.
    """
    parts = _split(url, key)
    host = (parts.hostname or "").removesuffix(".")
    if not (_address(host) is not None or _NAME.fullmatch(host) is not None):
        raise ConfigError(
            f"{key}: wanted the name or address of a server, found {host!r}; write https://git.example.org"
        )
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError(
            f"{key}: wanted a URL without user, query and fragment; a token goes into `token`, as reference"
        )
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback_name(host)):
        raise ConfigError(
            f"{key}: wanted https (http only for this machine), found {parts.scheme!r}; tokens are sent to it"
        )
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return Origin(parts.scheme, host, port, parts.path.rstrip("/"), named_by_site)


def _split(url: str, key: str) -> SplitResult:
    if not _PLAIN.fullmatch(url) or "\\" in url or len(url) > 2000:
        raise ConfigError(f"{key}: wanted a URL of visible ASCII characters, found {url[:80]!r}")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"{key}: wanted a URL, found {url[:80]!r}: {error}") from error
    return parts


def is_loopback_name(host: str) -> bool:
    """The host says itself that it is this machine."""
    address = _address(host)
    return host == "localhost" or (address is not None and _plain(address).is_loopback)


def checked_addresses(origin: Origin, resolve: Resolve) -> list[str]:
    """Addresses of `origin`, all of which may be dialled.

    Raises:
        StorageError: The name has no address now.
        ConfigError: One of them may not be dialled.
    """
    try:
        found = list(dict.fromkeys(resolve(origin.host, origin.port)))
    except OSError as error:
        raise StorageError(f"wanted the address of {origin.host}, found none: {error}") from error
    if not found:
        raise StorageError(f"wanted the address of {origin.host}, found none")
    for address in found:
        refused = refusal(address, origin)
        if refused:
            raise ConfigError(f"{origin.host} leads to {address}, {refused}; nothing was sent there")
    return found


def refusal(text: str, origin: Origin) -> str | None:
    """Why this address is not dialled; None: it may be."""
    found = _address(text)
    if found is None or getattr(found, "scope_id", None):
        return "which is not an address"
    address = _plain(found)
    if address.is_loopback:
        may_be = origin.is_loopback and origin.named_by_site
        return None if may_be else "this machine itself; the site must say so: http://127.0.0.1:PORT"
    if origin.is_loopback:
        return "which is not the loopback that the URL says"
    return _network_refusal(address, named_by_site=origin.named_by_site)


def _network_refusal(address: IPv4Address | IPv6Address, *, named_by_site: bool) -> str | None:
    if _is_in(address, _METADATA):
        return "where a cloud keeps the credentials of its machines"
    if _is_in(address, _PRIVATE):
        return None if named_by_site else "a private network, where only servers are that the site names"
    if _is_in(address, _SPECIAL) or (address.version == 6 and address not in _GLOBAL_IPV6):
        return "a special address (metadata, link-local, multicast, reserved, documentation)"
    return None


def _is_in(address: IPv4Address | IPv6Address, networks: Sequence[str]) -> bool:
    return any(address in network for network in map(_network, networks) if address.version == network.version)


@cache
def _network(text: str) -> IPv4Network | IPv6Network:
    return ip_network(text)


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that a mapped or NAT64 IPv6 address leads to; any other address itself."""
    if address.version == 4:
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def system_resolve(host: str, port: int) -> Sequence[str]:
    """Addresses of `host` by the system's resolver."""
    return [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
