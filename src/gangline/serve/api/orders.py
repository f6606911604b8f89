"""`/api/v1/orders`: what is to be built, what became of it, and that it is to be left."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from gangline.serve.access import readable
from gangline.serve.api.given import PROJECT, Caller, Given, Model, problems
from gangline.serve.api.run import Reason, said_by, stop
from gangline.serve.problems import Refused
from gangline.serve.types import Order

router = APIRouter(prefix="/api/v1/orders", tags=["orders"])
State = Literal["queued", "driving", "parked", "done", "dropped", "quarantined"]
OrderPath = Annotated[int, Path(ge=1, le=10**15 - 1)]
WAITING: tuple[State, ...] = ("queued", "driving", "parked", "quarantined")


class Orders(Model):
    """Oldest first."""

    orders: list[Order]


@router.get("", responses=problems())
def list_orders(
    service: Given,
    caller: Caller,
    *,
    state: Annotated[list[State] | None, Query(max_length=6)] = None,
    project: Annotated[str | None, Query(pattern=PROJECT)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Orders:
    """Orders of the projects that you may read; without `state` those that are not over."""
    projects = readable(caller)
    if project is not None:
        projects = (project,) if caller.may("reader", project) else ()
    if projects == ():
        return Orders(orders=[])
    return Orders(orders=service.desk.database.orders.list(states=state or WAITING, projects=projects, limit=limit))


@router.get("/{order}", responses=problems(404))
def get_order(service: Given, order: OrderPath) -> Order:
    """One order; its `run` is there once a worker has taken it up."""
    found = service.desk.database.orders.get(order)
    if found is None:
        raise Refused(404, "the order is gone")
    return found


@router.post("/{order}/cancel", status_code=202, responses=problems(404, 409, 503))
def cancel_order(service: Given, caller: Caller, order: OrderPath, wanted: Reason | None = None) -> Order:
    """Leave an order, whatever it is at: waiting, being fetched or read, or at its run, which is stopped.

    Answered with the order as it stands then; harmless when repeated.
    """
    reason = wanted.reason if wanted else ""
    found = service.desk.database.orders.withdraw(order, note=said_by(caller, reason))
    if found is None:
        raise Refused(404, "the order is gone")
    if found.run is not None and found.state in {"driving", "dropped"}:
        stop(service, caller, found.run, reason)
    return found
