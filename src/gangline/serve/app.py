"""The service as an ASGI application: its routers, its middleware, its error handlers."""

from typing import Any

import structlog
from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gangline import __version__
from gangline.errors import GanglineError
from gangline.serve import page_routes, webhooks
from gangline.serve.access import AccessMiddleware
from gangline.serve.api import artifacts, events, logs, metrics, orders, run, runs, state, tokens
from gangline.serve.api.dependencies import Problem
from gangline.serve.api.service import Service
from gangline.serve.context.service_context import ServiceContext
from gangline.serve.web.permissions import MatchedRule, find_rule
from gangline.serve.web.rate_limits import RequestLimits
from gangline.serve.web.responses import HeadersMiddleware, RequestRefused, problem, refusal

API = (runs.router, run.router, metrics.router, logs.router, events.router, artifacts.router, orders.router,
       tokens.router, state.router)  # fmt: skip
log = structlog.get_logger()


def create_app(context: ServiceContext, *, limits: RequestLimits | None = None) -> FastAPI:
    """The whole service over `context`; it starts no worker. `app.state.service` is what its handlers share."""
    app = _new_app()
    service = Service(context, limits)
    app.state.service = service
    hooks = webhooks.router(context, service.body_memory)
    for router in (hooks, *API, page_routes.router):  # tried in this order: a flood of deliveries costs least
        _require_rules(router)
        app.include_router(router)
    _answer_errors(app)
    app.add_middleware(AccessMiddleware, service=service)
    app.add_middleware(HeadersMiddleware)
    return app


def openapi_document() -> dict[str, Any]:
    """The API's description, as every service gives it."""
    app = _new_app()
    for router in API:
        app.include_router(router)
    return app.openapi()


def _new_app() -> FastAPI:
    app = FastAPI(
        title="gangline",
        version=__version__,
        summary="Runs of every commit: start, stop, follow, compare.",
        description="Every route but the state of the service requires `Authorization: Bearer gl_...`.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        if "bearer" not in document["components"].setdefault("securitySchemes", {}):
            document["components"]["securitySchemes"]["bearer"] = {"type": "http", "scheme": "bearer"}
            document["components"]["schemas"]["Problem"] = Problem.model_json_schema()
            _add_security(document)
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # how FastAPI's own guide extends it
    return app


def _add_security(document: dict[str, Any]) -> None:
    """Which operations need a token, from the table of rules; refusals of a shape are problems, too."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            matched = find_rule(method.upper(), path)
            if isinstance(matched, MatchedRule) and matched.rule.scope not in ("open", "signed"):
                operation["security"] = [{"bearer": []}]
    for unused in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(unused, None)


def _require_rules(router: APIRouter) -> None:
    """Raise for a route without a rule: a programming error, found before anything is served."""
    for route in router.routes:
        for method in getattr(route, "methods", None) or ():
            path = getattr(route, "path", "")
            assert isinstance(find_rule(method, path), MatchedRule), f"{method} {path} has no rule in serve.access"


def _answer_errors(app: FastAPI) -> None:
    async def answer(request: Request, error: Exception) -> Response:
        return problem(_refusal_of(request, error), page=_is_page(request))

    for kind in (RequestRefused, GanglineError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, answer)


def _refusal_of(request: Request, error: Exception) -> RequestRefused:
    match error:
        case RequestRefused():
            return error
        case GanglineError():
            log.warning("request_failed", path=request.url.path, cause=str(error))
            return refusal(error)
        case HTTPException():
            return RequestRefused(error.status_code, error.detail, error.headers)
        case RequestValidationError():
            said = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:10])
            return RequestRefused(422, "; ".join(said))
        case _:
            log.error("request_broke", path=request.url.path, cause=type(error).__name__, exc_info=error)
            return RequestRefused(500, "this is a bug in gangline; its log says more")


def _is_page(request: Request) -> bool:
    matched = find_rule(request.method, request.url.path)
    return isinstance(matched, MatchedRule) and matched.rule.is_page
