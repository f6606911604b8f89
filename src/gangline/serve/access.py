"""Access middleware: checks Host, caller, permission and rate limit of every request, then reads its body.

A request that passes reaches its handler with the `Principal` in `request.state.principal`. A run that the caller may
not read is answered with 404, like one that does not exist.
"""

from hashlib import sha256
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from gangline.errors import GanglineError
from gangline.http.asgi import replay
from gangline.serve.api.service import Service
from gangline.serve.database.types import Principal
from gangline.serve.web.body_limits import bounded_body
from gangline.serve.web.client_address import peer_address
from gangline.serve.web.permissions import MatchedRule, RouteRule, find_rule
from gangline.serve.web.rate_limits import TokenBuckets
from gangline.serve.web.responses import RequestRefused, problem, refusal

NOBODY = Principal(name="", roles={})
NO_RUN = "no such run, or you may not see it; GET /api/v1/runs lists the runs that you may see"
NO_ORDER = "no such order, or you may not see it; GET /api/v1/orders lists the orders that you may see"
_SAFE = frozenset({"GET", "HEAD"})


class AccessMiddleware:
    """ASGI middleware; nothing but HTTP passes."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        limits = service.limits
        self._app, self._service = app, service
        self._requests = TokenBuckets(limits.requests_per_second, limits.burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        page = False
        try:
            matched = self._rule(request)
            page = matched.rule.is_page
            await self._pass(request, matched, send)
        except (RequestRefused, GanglineError) as error:
            refused = refusal(error)
            if refused.status == 401 and page and request.method in _SAFE:
                onward = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                refused = RequestRefused(303, "log in first", {"Location": f"/login?next={quote(onward)}"})
            await problem(refused, page=page)(scope, receive, send)

    async def _pass(self, request: Request, matched: MatchedRule, send: Send) -> None:
        if matched.rule.scope == "signed":  # by whom is known once the body is read: the handler bounds it, and judges
            request.state.principal = NOBODY
            await self._app(request.scope, request.receive, send)
            return
        if matched.rule.scope == "open" and not self._has_credentials(request):
            self._count_request(f"peer {peer_address(request)}")  # no busy thread or database keeps a probe waiting
            request.state.principal = NOBODY
        else:
            request.state.principal = await run_in_threadpool(self._caller, request, matched)
        limits = self._service.limits
        async with bounded_body(
            request, self._service.body_memory, limit=limits.body_bytes, seconds=limits.body_seconds
        ) as body:
            self._check_form(request, matched.rule, body)
            await self._app(request.scope, replay(body, request.receive), send)

    def _has_credentials(self, request: Request) -> bool:
        return "authorization" in request.headers or self._service.sessions.cookie in request.cookies

    def _rule(self, request: Request) -> MatchedRule:
        host = (request.headers.get("host") or "").rsplit(":", 1)[0].strip("[]").lower()
        if host not in self._service.hosts:
            raise RequestRefused(421, "this service does not answer to this Host; serve.public_url sets its name")
        rule = find_rule(request.method, request.scope["path"])
        if isinstance(rule, MatchedRule):
            return rule
        if rule:
            raise RequestRefused(405, f"wanted {' or '.join(rule)} here", {"Allow": ", ".join(rule)})
        raise RequestRefused(404, "no such route; /openapi.json lists all routes")

    def _caller(self, request: Request, matched: MatchedRule) -> Principal:
        """Principal of the request's token or session, if the rule lets it pass; NOBODY on open routes."""
        peer = peer_address(request)
        digest = self._digest(request)
        principal = self._service.context.accounts.of_digest(digest) if digest else None
        if principal is None and matched.rule.scope == "open":
            self._count_request(f"peer {peer}")
            return NOBODY
        if digest is None:
            raise RequestRefused(401, "wanted a token: Authorization: Bearer gl_...", {"WWW-Authenticate": "Bearer"})
        if principal is None:  # asked first: behind a proxy everybody has one address, and guessers hold up themselves
            self._service.count_failed_login(peer)
            raise RequestRefused(401, "unknown or expired token", {"WWW-Authenticate": "Bearer"})
        self._count_request(f"token {digest}")
        self._require(principal, matched)
        return principal

    def _digest(self, request: Request) -> str | None:
        """Digest of the token in the header, else of the session's, which may write through pages only."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and token.strip():
            return sha256(token.strip().encode("utf-8", "surrogatepass")).hexdigest()
        cookie = request.cookies.get(self._service.sessions.cookie)
        if cookie is None or (request.method not in _SAFE and request.url.path.startswith("/api/")):
            return None
        return self._service.sessions.digest_in(cookie)

    def _count_request(self, name: str) -> None:
        wait = self._requests.take(name)
        if wait:
            raise RequestRefused(429, f"too many requests; retry in {wait:.1f} s", {"Retry-After": str(int(wait) + 1)})

    def _require(self, caller: Principal, matched: MatchedRule) -> None:
        """Check the rule. Raises RequestRefused: 404 if the caller may not even read, else 403."""
        rule = matched.rule
        if rule.scope == "run":
            _require_role(caller, rule, self._service.project_of_run(matched.run or ""), NO_RUN)
        elif rule.scope == "order":
            _require_role(caller, rule, self._service.project_of_order(matched.order or ""), NO_ORDER)
        elif rule.scope == "all" and not caller.may(rule.role, "*"):
            raise RequestRefused(403, f"the role {rule.role} of every project (*) is needed; ask an administrator")

    def _check_form(self, request: Request, rule: RouteRule, body: bytes) -> None:
        """Check a write by a browser: its origin is a page of this service, and its form has the session's token."""
        if request.method in _SAFE:
            return
        origin = request.headers.get("origin")
        if origin is not None and origin.split("://")[-1] != request.headers.get("host"):
            raise RequestRefused(403, "the request comes from a page of another site")
        if rule.is_page and rule.scope != "open":
            cookie = request.cookies.get(self._service.sessions.cookie) or ""
            if not self._service.sessions.has_csrf_token(cookie, body):
                raise RequestRefused(403, "the form belongs to another session; reload the page")


def _require_role(caller: Principal, rule: RouteRule, project: str | None, absent: str) -> None:
    if project is None or not caller.may("reader", project):
        raise RequestRefused(404, absent)
    if not caller.may(rule.role, project):
        raise RequestRefused(403, f"the role {rule.role} of {project} is needed; ask an administrator")
