"""State of the service: alive, ready, and its metric series."""

from fastapi import APIRouter, Response

from gangline.serve.api.dependencies import ApiModel, ServiceDep, problems
from gangline.serve.context.telemetry import Telemetry
from gangline.serve.database.orders import OrderQueue
from gangline.serve.web.responses import RequestRefused

router = APIRouter(tags=["service"])


class Alive(ApiModel):
    """The process answers."""

    status: str


class Ready(ApiModel):
    """Whether the service can do its work, and what hinders it."""

    status: str
    store: str
    database: str


@router.get("/healthz")
async def healthz() -> Alive:
    """This process answers."""
    return Alive(status="ok")


@router.get("/readyz", responses=problems(503))
def readyz(service: ServiceDep) -> Ready:
    """Ready if a test write to the database worked and the store answered its last request; else 503.

    The answer states the problem (`database has a full disk`) without names, because it needs no token.
    """
    database, store_problem = service.readiness.problem(), service.context.health.problem()
    if database is not None or store_problem is not None:
        detail = (
            f"database {database.summary if database else 'ok'}, store {'is store_problem' if store_problem else 'ok'}"
        )
        raise RequestRefused(503, detail, {"Retry-After": "5"})
    return Ready(status="ok", store="ok", database="ok")


@router.get("/metrics", responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems(404)})
def metrics(service: ServiceDep) -> Response:
    """Series of the service and finals of its runs, for Prometheus."""
    if service.context.telemetry is None:
        raise RequestRefused(404, "this service keeps no series")
    report_queue(service.context.telemetry, service.context.database.orders, now=service.context.clock())
    media_type, body = service.context.telemetry.render()
    return Response(body, headers={"Content-Type": media_type})


MOST_ORDERS = 200
"""Oldest orders of the queue that are checked for one that may start."""


def report_queue(telemetry: Telemetry, orders: OrderQueue, *, now: float) -> None:
    """Orders by state, and since when the oldest may start that has not."""
    waiting = orders.list(states=("queued",), projects=None, limit=MOST_ORDERS)
    since = [max(order.created, order.not_before) for order in waiting if order.not_before <= now]
    telemetry.orders(orders.counts(), max(0.0, now - min(since, default=now)))
