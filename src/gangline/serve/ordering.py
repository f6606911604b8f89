"""From "build this branch of that project" to an order in the queue; retried with one key, it is one order."""

from dataclasses import replace
from hashlib import sha256

from gangline.line.forge.open import claimed
from gangline.serve.desk import ServiceDesk
from gangline.serve.problems import Refused
from gangline.serve.types import Order
from gangline.spec.site import Site

BRANCH = r"^[A-Za-z0-9_][A-Za-z0-9_+@=#-]*([./][A-Za-z0-9_+@=#-]+)*$"
"""Names that git takes, but for exotic ones."""
OVERRIDE = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){1,8}=[^\x00-\x1f\x7f]*$"


def order_of(
    site: Site, *, project: str, branch: str, commit: str | None, overrides: tuple[str, ...], again: bool, asked_by: str
) -> Order:
    """What `site` calls this.

    Raises:
        Refused: The site builds no such project.
    """
    place = claimed(site, project)
    if place is None and project not in site.serve.repositories:
        raise Refused(404, f"this service builds no project {project}")
    forge, repository = place or (None, "")
    return Order(
        project=project, forge=forge, repository=repository, ref=f"refs/heads/{branch}", commit=commit, branch=branch,
        cause="api", overrides=overrides, again=again, asked_by=asked_by,
    )  # fmt: skip


def queue(desk: ServiceDesk, order: Order, *, key: str | None) -> Order:
    """Put an order into the queue, durable when this returns; of one key and asker the first one counts.

    Raises:
        Refused: 409, the key was used for something else.
    """
    now = desk.clock()
    if key is None:
        return desk.database.orders.add(order, now=now)
    mark = sha256(f"{order.asked_by}\0{key}".encode()).hexdigest()
    marked = replace(order, asked_by=f"{order.asked_by} #{mark[:16]}")
    taken = desk.database.deliveries.take_in(forge="api", delivery=mark, body_digest=mark, order=marked, now=now)
    found = desk.database.orders.asked(project=order.project, by=marked.asked_by)
    if found is None:
        raise Refused(409, "this Idempotency-Key was used for another project")
    if not taken and _question(found) != _question(marked):
        raise Refused(409, f"this Idempotency-Key started order {found.id}, which asks for something else")
    return found


def _question(order: Order) -> tuple[object, ...]:
    return order.project, order.ref, order.commit, order.overrides, order.again
