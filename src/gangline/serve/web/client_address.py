"""Client address of a request: the peer of its connection, or the address that a trusted proxy forwards.

Limits count IPv6 clients by their network of 64 bits, since one client has a whole network.
"""

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from starlette.requests import Request

Address = IPv4Address | IPv6Address
MAX_HOPS = 32
"""Entries of a header that are looked at, from the end."""
_FORWARDED = re.compile(r'(?:^|[;,\s])for=("[^"]*"|[^;,\s]*)', re.IGNORECASE)
_WITH_PORT = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::[0-9]{1,5})?|([0-9.]+):[0-9]{1,5}")


class ClientAddresses:
    """The proxies of a site."""

    def __init__(self, proxies: Sequence[str] = ()) -> None:
        self._networks: tuple[IPv4Network | IPv6Network, ...] = tuple(ip_network(each) for each in proxies)

    def is_proxy(self, peer: str) -> bool:
        """Whether the address is a trusted proxy."""
        address = _parse(peer)
        return address is not None and self._is_ours(address)

    def client(self, peer: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """The nearest address that is not a trusted proxy.

        `X-Forwarded-For` and `Forwarded` of anybody else say nothing. A proxy writes one of them and may pass the
        other on as it came: where both are there and differ, the request counts as the proxy's own.
        """
        if not self.is_proxy(peer):
            return peer
        found = {str(self._nearest(hops)) for hops in _hops(headers) if hops}
        return found.pop() if len(found) == 1 and "None" not in found else peer

    def _nearest(self, hops: Sequence[str]) -> Address | None:
        """From the end: trusted proxies, then the client of the first of them; None if it cannot be parsed."""
        address = None
        for hop in reversed(hops[-MAX_HOPS:]):
            address = _parse(hop)
            if address is None or not self._is_ours(address):
                break
        return address

    def _is_ours(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def budget_key(client: str) -> str:
    """Key of a client's budgets."""
    address = _parse(client)
    if isinstance(address, IPv6Address):
        return str(IPv6Network((int(address) >> 64 << 64, 64)))
    return client if address is None else str(address)


def peer_address(request: Request) -> str:
    """Key of a request's budgets."""
    return budget_key(request.client.host if request.client else "")


def _hops(headers: Iterable[tuple[bytes, bytes]]) -> tuple[list[str], list[str]]:
    """What `X-Forwarded-For` and `Forwarded` list, in order."""
    x_forwarded: list[str] = []
    forwarded: list[str] = []
    for name, value in headers:
        if name == b"x-forwarded-for":
            x_forwarded += [each.strip() for each in value.decode("latin-1").split(",")]
        elif name == b"forwarded":
            forwarded += [each.strip('"') for each in _FORWARDED.findall(value.decode("latin-1"))] or [""]
    return x_forwarded, forwarded


def _parse(text: str) -> Address | None:
    """An address, with or without a port; one of IPv4 that is written as IPv6 is that of IPv4."""
    match = _WITH_PORT.fullmatch(text)
    try:
        address = ip_address((match[1] or match[2]) if match else text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
