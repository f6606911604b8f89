"""`FakeApi`: the client of the product over the fake server, in this process; nothing waits longer than `patience`."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from tests.cluster.fake.refusal import Refusal, forbidden
from tests.cluster.fake.server import Asked, FakeServer

from gangline.launch.kubernetes.client.api import Object, parse_path
from gangline.launch.kubernetes.client.client import KubernetesClient
from gangline.launch.kubernetes.client.transport import ApiRequest, ApiResponse, ResponseStream
from gangline.launch.kubernetes.cluster.rights import Right

Proceed = Callable[[], ApiResponse]
Hook = Callable[[ApiRequest, Proceed], ApiResponse]


class FakeApi(KubernetesClient):
    """Implements `KubernetesApi` in memory.

    Args:
        namespace: Of this gang's objects; made if it is not there.
        server: Shared with other clients; none: a new one.
        serve: Kinds beyond the built-in ones: trainer, jobset, kueue, volcano, kai.
        rights: What this account may do, here and in the cluster; none given: everything.
        patience: Seconds that a watch or a followed log waits for news before it ends, whatever it asked for.

    Attributes:
        idle: Called whenever a watch or a log has nothing to say, before it waits: put controllers here.
        hooks: Each stands around every call but watches and logs, the last one outermost: answer instead of the server,
            or call `proceed` and raise `ApiUnavailable` to lose its answer. That error reaches the caller at once.
        refused: What was asked for beyond `rights`, as `list nodes`.
    """

    def __init__(
        self,
        namespace: str = "gangs",
        *,
        server: FakeServer | None = None,
        serve: tuple[str, ...] = (),
        rights: Iterable[Right] | None = None,
        patience: float = 0.05,
    ) -> None:
        self.server = server or FakeServer(serve=serve)
        self.idle: list[Callable[[], object]] = []
        self.hooks: list[Hook] = []
        self.rights = None if rights is None else tuple(rights)
        self.refused: Counter[str] = Counter()
        self.patience = patience
        self.server.add_namespace(namespace)
        super().__init__(_InMemory(self), namespace=namespace)


class _InMemory:
    def __init__(self, api: FakeApi) -> None:
        self._api = api

    def send(self, request: ApiRequest) -> ApiResponse:
        if (refusal := self._lacking(request)) is not None:
            return refusal
        proceed: Proceed = lambda: self._answer(request)  # noqa: E731  the innermost of a chain of calls
        for hook in self._api.hooks:
            proceed = _around(hook, request, proceed)
        return proceed()

    @contextmanager
    def stream(self, request: ApiRequest, *, seconds: float, silence_seconds: float) -> Iterator[ResponseStream]:
        server, asked = self._api.server, _asked(request)
        if (refusal := self._lacking(request)) is not None:
            yield ResponseStream(refusal=refusal, chunks=iter(()))
            return
        try:
            news = _log(server, asked) if asked.place.subresource == "log" else server.watch(asked)
        except Refusal as refusal:
            yield ResponseStream(refusal=ApiResponse(status=refusal.code, body=refusal.body), chunks=iter(()))
            return
        follows = asked.query.get("follow", "true") == "true"
        yield ResponseStream(refusal=None, chunks=self._chunks(news, seconds=seconds if follows else 0.0))

    def _lacking(self, request: ApiRequest) -> ApiResponse | None:
        """What an account without this right is told."""
        place = parse_path(request.path)
        if self._api.rights is None or not place.plural or place.group == "authorization.k8s.io":
            return None
        name = "" if request.verb == "create" else place.name
        for right in self._api.rights:
            if (
                right.what == place.resource
                and request.verb in right.verbs
                and (not right.names or name in right.names)
            ):
                return None
        self._api.refused[f"{request.verb} {place.resource}"] += 1
        why = f'User "fake" cannot {request.verb} resource "{place.plural}" in API group "{place.group}"'
        refusal = forbidden(place.resource, place.name, why)
        return ApiResponse(status=refusal.code, body=refusal.body)

    def _answer(self, request: ApiRequest) -> ApiResponse:
        status, body = self._api.server.answer(_asked(request))
        return ApiResponse(status=status, body=_bare(body) if status < 300 and ";as=" in request.accept else body)

    def _chunks(self, news: Callable[[], Iterator[bytes]], *, seconds: float) -> Iterator[bytes]:
        """What is there, then what comes, until nothing came for `patience`."""
        until = time.monotonic() + seconds
        while True:
            found = list(news())
            yield from found
            if not found:
                for each in self._api.idle:
                    each()
                found = list(news())
                yield from found
            if not found and not self._has_news(until):
                return

    def _has_news(self, until: float) -> bool:
        changed = self._api.server.store.changed
        with changed:
            return changed.wait(max(0.0, min(self._api.patience, until - time.monotonic())))


def _bare(body: Object) -> Object:
    """An object, or a list of them, with metadata alone."""
    if "items" in body:
        return {"metadata": body["metadata"], "items": [_bare(each) for each in body["items"]]}
    return {"metadata": body["metadata"]}


def _log(server: FakeServer, asked: Asked) -> Callable[[], Iterator[bytes]]:
    place = asked.place
    key = (place.namespace, place.name)
    status, _ = server.answer(Asked(method="GET", path=asked.path.removesuffix("/log")))
    if status != 200:
        raise Refusal(404, "NotFound", f'pods "{place.name}" not found')
    since = asked.query.get("sinceTime", "")[:19]  # whole seconds, as the kubelet counts
    reported = [0]

    def lines() -> Iterator[bytes]:
        have = server.logs.get(key, [])[reported[0] :]
        reported[0] += len(have)
        for at, text in have:
            if at[:19] >= since:
                yield f"{at} {text}\n".encode()

    return lines


def _asked(request: ApiRequest) -> Asked:
    return Asked(
        method=request.method,
        path=request.path,
        query=request.query,
        body=request.body,
        content_type=request.content_type,
    )


def _around(hook: Hook, request: ApiRequest, proceed: Proceed) -> Proceed:
    return lambda: hook(request, proceed)
