"""Client address of a request as its budgets are counted: an address, or the network of 64 bits of an IPv6 client.

Whose request it is behind a proxy, uvicorn reads from `X-Forwarded-For` (`server.create_server`).
"""

from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address

from starlette.requests import Request


@lru_cache(maxsize=4096)
def budget_key(client: str) -> str:
    """Key of a client's budgets; whatever is no address counts as one client."""
    try:
        address = ip_address(client)
    except ValueError:
        return ""
    if isinstance(address, IPv6Address):
        return str(address.ipv4_mapped or IPv6Network((int(address) >> 64 << 64, 64)))
    return client


def peer_address(request: Request) -> str:
    """Key of a request's budgets."""
    return budget_key(request.client.host if request.client else "")
