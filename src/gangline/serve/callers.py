"""Whose request it is, told to everything behind; of those behind one proxy, nobody has very many at a time.

Connections have budgets of their own (`connections`). Those of a proxy are shared by all that it speaks for, so what
each of them may have unanswered is counted here.
"""

from collections import Counter
from contextlib import ExitStack

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gangline.serve.addresses import Addresses, budget_of
from gangline.serve.problems import Refused, problem

MOST_UNANSWERED = 64
"""Requests of one address behind a proxy whose answer has not begun."""


class Callers:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, addresses: Addresses) -> None:
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
        await self._counted({**scope, "client": (client, 0)}, receive, send, budget_of(client))

    async def _counted(self, scope: Scope, receive: Receive, send: Send, name: str) -> None:
        if self._unanswered[name] >= MOST_UNANSWERED:
            said = f"{MOST_UNANSWERED} requests of your address are not answered yet; again in a moment"
            refused = Refused(429, said, {"Retry-After": "1", "Connection": "close"})
            await problem(refused, page=False)(scope, receive, send)
            return
        with ExitStack() as place:
            self._unanswered[name] += 1
            place.callback(self._leave, name)

            async def sending(message: Message) -> None:
                if message["type"] == "http.response.start":
                    place.close()
                await send(message)

            await self._app(scope, receive, sending)

    def _leave(self, name: str) -> None:
        self._unanswered[name] -= 1
        if not self._unanswered[name]:
            del self._unanswered[name]
