"""`/api/v1/orders`: what is to be built, and what became of it."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from gangline.serve.access import readable
from gangline.serve.api.given import PROJECT, Caller, Given, Model, problems
from gangline.serve.problems import Refused
from gangline.serve.types import Order

router = APIRouter(prefix="/api/v1/orders", tags=["orders"])
State = Literal["queued", "driving", "parked", "done", "dropped", "quarantined"]
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
def get_order(service: Given, order: Annotated[int, Path(ge=1, le=10**15 - 1)]) -> Order:
    """One order; its `run` is there once a worker has taken it up."""
    found = service.desk.database.orders.get(order)
    if found is None:
        raise Refused(404, "the order is gone")
    return found
