"""Limits per client address: open connections of the server, and unanswered requests behind one proxy.

When there are too many connections, the one that was idle longest is closed: of that address, else of the address that
has most. Connections of a proxy are shared by all its clients, so their unanswered requests are counted one by one.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gangline.serve.web.client_address import ClientAddresses, budget_key
from gangline.serve.web.responses import RequestRefused, problem

MAX_CONNECTIONS = 1024
"""Of all, where a process may have as many files."""
MAX_CONNECTIONS_PER_ADDRESS = 512
"""Of one address; a proxy that the site names may have all."""
IDLE_SECONDS = 2.0
"""After which a connection may give way."""


class LimitedConnection(Protocol):
    """A connection."""

    @property
    def is_waiting(self) -> bool:
        """For its client: nothing was asked, or not yet to the end."""
        ...

    @property
    def was_answered(self) -> bool:
        """Whether a request on it has been completed."""
        ...

    def evict(self) -> None: ...


class Connections:
    """All of one server; its event loop alone calls it."""

    def __init__(
        self,
        addresses: ClientAddresses,
        *,
        limit: int = MAX_CONNECTIONS,
        limit_each: int = MAX_CONNECTIONS_PER_ADDRESS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._addresses, self._limit, self._limit_each, self._clock = addresses, limit, limit_each, clock
        self._open: dict[str, OrderedDict[LimitedConnection, float]] = {}
        """Connections by address with the time of their last data, the longest idle first."""

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def admit(self, connection: LimitedConnection, peer: str) -> bool:
        """Count a new one in; False where there is no room that could be made."""
        name = budget_key(peer)
        if len(self._open.get(name, ())) >= self._limit_each and not self._addresses.is_proxy(peer):
            has_room = self._evict_one(name)
        else:
            has_room = len(self) < self._limit or self._evict_any()
        if has_room:
            self._open.setdefault(name, OrderedDict())[connection] = self._clock()
        return has_room

    def touch(self, connection: LimitedConnection, peer: str) -> None:
        """Note that the client sent data."""
        mine = self._open.get(budget_key(peer), OrderedDict())
        if connection in mine:
            mine[connection] = self._clock()
            mine.move_to_end(connection)

    def remove(self, connection: LimitedConnection, peer: str) -> None:
        name = budget_key(peer)
        self._open.get(name, OrderedDict()).pop(connection, None)
        if not self._open.get(name, True):
            del self._open[name]

    def _evict_any(self) -> bool:
        """Of the address that has most, else of the one with most after it."""
        return any(self._evict_one(name) for name in sorted(self._open, key=lambda each: -len(self._open[each])))

    def _evict_one(self, name: str) -> bool:
        """Of an address; False where all are being answered, or have just begun."""
        found = next((each for each in self._idle(name) if not each.was_answered), None)
        found = found or next(self._idle(name), None)
        if found is None:
            return False
        self.remove(found, name)
        found.evict()
        return True

    def _idle(self, name: str) -> Iterator[LimitedConnection]:
        """Connections that wait for their client, the longest idle first."""
        since = self._clock() - IDLE_SECONDS
        for each, touch in self._open[name].items():
            if touch > since:
                return
            if each.is_waiting:
                yield each


MAX_UNANSWERED = 64
"""Requests of one address behind a proxy whose answer has not begun."""


class ProxyLimitMiddleware:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, addresses: ClientAddresses) -> None:
        self._app, self._addresses = app, addresses
        self._unanswered: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope.get("client"):
            await self._app(scope, receive, send)
            return
        peer = scope["client"][0]
        client = self._addresses.client(peer, scope["headers"])
        if client == peer:
            await self._app(scope, receive, send)
            return
        await self._counted({**scope, "client": (client, 0)}, receive, send, budget_key(client))

    async def _counted(self, scope: Scope, receive: Receive, send: Send, name: str) -> None:
        if self._unanswered[name] >= MAX_UNANSWERED:
            detail = f"{MAX_UNANSWERED} requests of your address are not answered yet; retry in 1 s"
            refused = RequestRefused(429, detail, {"Retry-After": "1", "Connection": "close"})
            await problem(refused, page=False)(scope, receive, send)
            return
        with ExitStack() as slot:
            self._unanswered[name] += 1
            slot.callback(self._leave, name)

            async def sending(message: Message) -> None:
                if message["type"] == "http.response.start":
                    slot.close()
                await send(message)

            await self._app(scope, receive, sending)

    def _leave(self, name: str) -> None:
        self._unanswered[name] -= 1
        if not self._unanswered[name]:
            del self._unanswered[name]
