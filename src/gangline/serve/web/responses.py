"""Refusals as `application/problem+json` or an error page, and the security headers of every response."""

from collections.abc import Mapping
from http import HTTPStatus

from starlette.datastructures import MutableHeaders
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gangline.errors import (
    CapacityError,
    ConfigError,
    GanglineError,
    StorageError,
    UsageError,
)

MEDIA_TYPE = "application/problem+json"
_STATUS: tuple[tuple[type[GanglineError], int], ...] = (
    (UsageError, 422),
    (ConfigError, 409),
    (CapacityError, 409),
    (StorageError, 503),
)
RETRY_SECONDS = "5"


class RequestRefused(Exception):
    """A request that ends here."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})


def status_of(error: GanglineError) -> int:
    """HTTP status of each error class; any other error is a 500."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def refusal(error: RequestRefused | GanglineError) -> RequestRefused:
    """The response to an error: its status, and `Retry-After` if the store is unavailable."""
    if isinstance(error, RequestRefused):
        return error
    status = status_of(error)
    return RequestRefused(status, str(error), {"Retry-After": RETRY_SECONDS} if status == 503 else {})


def problem(refused: RequestRefused, *, page: bool) -> Response:
    """The answer to a request that was refused."""
    if page:
        from gangline.serve.pages import render_problem

        return HTMLResponse(render_problem(refused.status, refused.detail), refused.status, refused.headers)
    body = {"title": HTTPStatus(refused.status).phrase, "status": refused.status, "detail": refused.detail}
    return JSONResponse(body, refused.status, refused.headers, media_type=MEDIA_TYPE)


PAGE_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self';"
    " form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
DOCUMENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; sandbox"
"""Policy of a report and of what runs left behind: nothing runs, nothing is loaded, nothing is ours."""
_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with none at all, forms of our own pages would come from nowhere
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": PAGE_POLICY,
    "Cache-Control": "no-store",
}


class HeadersMiddleware:
    """ASGI middleware; a handler's own value wins."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _ALWAYS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, sending)
