"""Where a connection to a forge may lead: the site's URL is read strictly, every address of its name is judged.

Loopback is for a URL that says loopback itself. Private networks are for forges that the site names by URL, never for
the public services. Metadata services, link-local and other special addresses are for nobody. What is judged is the
address that is dialled, so a name that answers otherwise a moment later changes nothing.
"""

import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from gangline.errors import ConfigError, StorageError

Resolve = Callable[[str, int], Sequence[str]]
"""Addresses of a name, as text."""
_NAME = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*"
)
_PLAIN = re.compile(r"[\x21-\x7e]+")
_NAT64 = IPv6Network("64:ff9b::/96")
_METADATA = (ip_network("fd00:ec2::/32"), ip_network("100.100.100.200/32"), ip_network("0.0.0.0/8"))
"""Special addresses that Python's classes count as merely private."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A server that the site names, and how far its addresses may reach."""

    scheme: str
    host: str
    port: int
    path: str
    """Without the slash at its end."""
    may_be_private: bool

    @property
    def is_loopback(self) -> bool:
        return is_loopback_name(self.host)

    @property
    def url(self) -> str:
        """As people and git read it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = {"https": 443, "http": 80}[self.scheme]
        return f"{self.scheme}://{host}" + (f":{self.port}" if self.port != usual else "") + self.path


def read_origin(url: str, *, key: str, may_be_private: bool) -> Origin:
    """The server of `url`; `key` is the key of site.toml that it stands at.

    Raises:
        ConfigError: No https URL (http on loopback) of a plain host; what is wrong is said.
    """
    parts = _split(url, key)
    host = (parts.hostname or "").removesuffix(".")
    if not _is_plain_host(host):
        raise ConfigError(
            f"{key}: wanted the name or address of a server, found {host!r}; write https://git.example.org"
        )
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError(
            f"{key}: wanted a URL without user, query and fragment; a token goes into `token`, as reference"
        )
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback_name(host)):
        raise ConfigError(f"{key}: wanted https (http on loopback alone), found {parts.scheme!r}; tokens travel there")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return Origin(parts.scheme, host, port, parts.path.rstrip("/"), may_be_private)


def _split(url: str, key: str) -> SplitResult:
    if not _PLAIN.fullmatch(url) or "\\" in url or len(url) > 2000:
        raise ConfigError(f"{key}: wanted a URL of visible ASCII characters, found {url[:80]!r}")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"{key}: wanted a URL, found {url[:80]!r}: {error}") from error
    return parts


def _is_plain_host(host: str) -> bool:
    return _address(host) is not None or _NAME.fullmatch(host) is not None


def is_loopback_name(host: str) -> bool:
    """The host says itself that it is this machine."""
    address = _address(host)
    return host == "localhost" or (address is not None and _plain(address).is_loopback)


def judged_addresses(origin: Origin, resolve: Resolve) -> list[str]:
    """Addresses of `origin`, all of which may be dialled.

    Raises:
        StorageError: The name has no address now.
        ConfigError: One of them is an address where no forge is looked for.
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
    if found is None:
        return "which is no address"
    address = _plain(found)
    if address.is_loopback:
        return None if origin.is_loopback else "this machine itself; a URL must say so: http://127.0.0.1:PORT"
    if origin.is_loopback:
        return "which is not the loopback that the URL says"
    if _is_special(address):
        return "a special address (metadata, link-local, multicast, reserved)"
    if not address.is_global and not origin.may_be_private:
        return "a private network, where no public service is"
    return None


def _is_special(address: IPv4Address | IPv6Address) -> bool:
    kinds = (address.is_link_local, address.is_multicast, address.is_unspecified, address.is_reserved)
    listed = any(address.version == net.version and address in net for net in _METADATA)
    return any(kinds) or listed or (address.version == 6 and address.teredo is not None)


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 one stands for; else itself."""
    if address.version == 4:
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def system_resolve(host: str, port: int) -> Sequence[str]:
    """What the system's resolver answers."""
    return [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
