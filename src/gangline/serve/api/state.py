"""How the service is: alive, ready, and the series that a scraper takes."""

from fastapi import APIRouter, Response

from gangline.serve.api.given import Given, Model, problems
from gangline.serve.problems import Refused
from gangline.serve.sampling import tell_queue

router = APIRouter(tags=["service"])


class Alive(Model):
    status: str


class Ready(Model):
    status: str
    store: str
    database: str


@router.get("/healthz")
async def healthz() -> Alive:
    """This process answers."""
    return Alive(status="ok")


@router.get("/readyz", responses=problems(503))
def readyz(service: Given) -> Ready:
    """A delivery would be kept, as a write has just shown, and the store answered when it was last asked; else 503.

    The answer says what is wrong (`database has a full disk`), and no names: anybody may ask.
    """
    database, away = service.readiness.trouble(), service.health.trouble()
    if database is not None or away is not None:
        said = f"database {database.words if database else 'ok'}, store {'is away' if away else 'ok'}"
        raise Refused(503, said, {"Retry-After": "5"})
    return Ready(status="ok", store="ok", database="ok")


@router.get("/metrics", responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems(404)})
def metrics(service: Given) -> Response:
    """Series of the service and finals of its runs, for Prometheus."""
    if service.desk.telemetry is None:
        raise Refused(404, "this service keeps no series")
    tell_queue(service.desk.telemetry, service.desk.database.orders, now=service.desk.clock())
    media_type, body = service.desk.telemetry.render()
    return Response(body, headers={"Content-Type": media_type})
