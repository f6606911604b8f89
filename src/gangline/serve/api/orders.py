"""`/api/v1/orders`: queued orders, their results, and their cancellation."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from gangline.serve.api.dependencies import PROJECT, ApiModel, CallerDep, ServiceDep, problems
from gangline.serve.api.run import Reason, reason_with_caller, stop
from gangline.serve.database.types import Order
from gangline.serve.web.permissions import readable_projects
from gangline.serve.web.responses import RequestRefused

router = APIRouter(prefix="/api/v1/orders", tags=["orders"])
State = Literal["queued", "driving", "parked", "done", "dropped", "quarantined"]
OrderPath = Annotated[int, Path(ge=1, le=10**15 - 1)]
WAITING: tuple[State, ...] = ("queued", "driving", "parked", "quarantined")


class Orders(ApiModel):
    """Oldest first."""

    orders: list[Order]


@router.get("", responses=problems())
def list_orders(
    service: ServiceDep,
    caller: CallerDep,
    *,
    state: Annotated[list[State] | None, Query(max_length=6)] = None,
    project: Annotated[str | None, Query(pattern=PROJECT)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Orders:
    """Orders of the projects that you may read; without `state`, those that have not ended."""
    projects = readable_projects(caller)
    if project is not None:
        projects = (project,) if caller.may("reader", project) else ()
    if projects == ():
        return Orders(orders=[])
    return Orders(orders=service.context.database.orders.list(states=state or WAITING, projects=projects, limit=limit))


@router.get("/{order}", responses=problems(404))
def get_order(service: ServiceDep, order: OrderPath) -> Order:
    """One order; its `run` is set once a worker has started it."""
    found = service.context.database.orders.get(order)
    if found is None:
        raise RequestRefused(404, "the order is gone")
    return found


@router.post("/{order}/cancel", status_code=202, responses=problems(404, 409, 503))
def cancel_order(service: ServiceDep, caller: CallerDep, order: OrderPath, wanted: Reason | None = None) -> Order:
    """Cancel an order in any state: waiting, being fetched or read, or running, in which case its run is stopped.

    Answered with the order as it is then; harmless when repeated.
    """
    reason = wanted.reason if wanted else ""
    found = service.context.database.orders.withdraw(order, note=reason_with_caller(caller, reason))
    if found is None:
        raise RequestRefused(404, "the order is gone")
    if found.run is not None and found.state in {"driving", "dropped"}:
        stop(service, caller, found.run, reason)
    return found
