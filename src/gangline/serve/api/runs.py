"""`/api/v1/runs`: the list with filters and pages, and starting a run: an order in the queue, idempotent by key."""

import base64
import json
import re
from dataclasses import replace
from hashlib import sha256
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Response
from pydantic import AfterValidator, Field

from gangline.errors import UsageError
from gangline.forge.factory import forge_of_project
from gangline.git.branches import MAX_REF_BYTES, check_branch
from gangline.serve.api.dependencies import PLAIN, PROJECT, ApiModel, CallerDep, ServiceDep, Text, problems
from gangline.serve.context.quarantine import RefusedRecord
from gangline.serve.context.service_context import ServiceContext
from gangline.serve.database.types import Order, RunFilter, RunRow
from gangline.serve.web.permissions import readable_projects
from gangline.serve.web.responses import RequestRefused
from gangline.spec.config.site import Site

OVERRIDE = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){1,8}=[^\x00-\x1f\x7f]*$"


def order_to_start(
    site: Site, *, project: str, branch: str, commit: str | None, overrides: tuple[str, ...], again: bool, asked_by: str
) -> Order:
    """What `site` calls this.

    Raises:
        RequestRefused: The site builds no such project.
    """
    place = forge_of_project(site, project)
    if place is None and project not in site.serve.repositories:
        raise RequestRefused(404, f"this service builds no project {project}")
    forge, repository = place or (None, "")
    return Order(
        project=project, forge=forge, repository=repository, ref=f"refs/heads/{branch}", commit=commit, branch=branch,
        cause="api", overrides=overrides, again=again, asked_by=asked_by,
    )  # fmt: skip


def enqueue(context: ServiceContext, order: Order, *, key: str | None) -> Order:
    """Put an order into the queue, durable when this returns; of one key and asker the first one counts.

    Raises:
        RequestRefused: 409, the key was used for something else.
    """
    now = context.clock()
    if key is None:
        return context.database.orders.add(order, now=now)
    digest = sha256(f"{order.asked_by}\0{key}".encode()).hexdigest()
    marked = replace(order, asked_by=f"{order.asked_by} #{digest[:16]}")
    is_new = context.database.deliveries.take_in(
        forge="api", delivery=digest, body_digest=digest, order=marked, now=now
    )
    requester = context.database.orders.find_by_requester(project=order.project, by=marked.asked_by)
    if requester is None:
        raise RequestRefused(409, "this Idempotency-Key was used for another project")
    if not is_new and _request(requester) != _request(marked):
        raise RequestRefused(409, f"this Idempotency-Key started order {requester.id}, which is for another request")
    return requester


def _request(order: Order) -> tuple[object, ...]:
    return order.project, order.ref, order.commit, order.overrides, order.again


router = APIRouter(prefix="/api/v1", tags=["runs"])
MOST_ROWS = 200
STALE = "Gangline-Stale"
"""Header of responses made while the store was unavailable: the reason."""
VerdictFilter = Literal["open", "passed", "refused", "failed", "cancelled", "superseded"]


class RunPage(ApiModel):
    """Runs, newest first."""

    runs: list[RunRow]
    next: str | None = Field(description="Give it as `before` for the page after this one; null: this is the last.")
    refused: list[RefusedRecord] = Field(description="Keys of these projects where no record can be read, and why.")


def _branch(name: str) -> str:
    try:
        return check_branch(name)
    except UsageError as error:
        raise ValueError(str(error)) from error


class Start(ApiModel):
    """What to build."""

    project: str = Field(pattern=PROJECT, examples=["bytegpt"])
    branch: Annotated[str, AfterValidator(_branch)] = Field(
        max_length=MAX_REF_BYTES, description="As `git check-ref-format --branch` takes it.", examples=["main"]
    )
    commit: str | None = Field(
        None, pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$", description="Full object name; null: the head of the branch."
    )
    overrides: list[Annotated[str, Field(max_length=200, pattern=OVERRIDE)]] = Field(
        [], max_length=32, examples=[["train.seed=2"]]
    )
    again: bool = Field(False, description="The next attempt, where this question was answered before.")


@router.get("/runs", responses=problems())
def list_runs(
    service: ServiceDep,
    caller: CallerDep,
    response: Response,
    *,
    project: Annotated[str | None, Query(pattern=PROJECT)] = None,
    branch: Annotated[str | None, Query(max_length=MAX_REF_BYTES, pattern=PLAIN)] = None,
    commit: Annotated[
        str | None, Query(pattern=r"^[0-9a-f]{1,64}$", description="Beginning of an object name.")
    ] = None,
    verdict: Annotated[VerdictFilter | None, Query()] = None,
    pull_request: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    text: Text = None,
    before: Annotated[str | None, Query(max_length=400, description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 50,
) -> RunPage:
    """Runs of the projects that you may read."""
    wanted = RunFilter(
        projects=readable_projects(caller), project=project, branch=branch, commit=commit, verdict=verdict,
        pull_request=pull_request, text=text, before=decode_cursor(before), limit=limit + 1,
    )  # fmt: skip
    rows, following = page_of(service.context.database.runs.search(wanted), limit)
    if (problem := service.context.health.problem()) is not None:
        response.headers[STALE] = header_text(problem)
    refused = service.context.quarantine.list_refused(wanted.projects, project)
    return RunPage(runs=rows, next=following, refused=refused[:MOST_ROWS])


@router.post("/runs", status_code=202, responses=problems(404, 409))
def start_run(
    service: ServiceDep,
    caller: CallerDep,
    wanted: Start,
    *,
    idempotency_key: Annotated[
        str | None, Header(min_length=8, max_length=100, pattern=r"^[\x21-\x7e]+$", description="Yours, of one start.")
    ] = None,
) -> Order:
    """Queue a run; a repeat with the same `Idempotency-Key` answers the first one's order."""
    if not caller.may("reader", wanted.project) or wanted.project not in service.context.project_names():
        raise RequestRefused(404, f"this service builds no project {wanted.project} that you may read")
    if not caller.may("runner", wanted.project):
        raise RequestRefused(403, f"the role runner of {wanted.project} is needed; ask an administrator")
    order = order_to_start(
        service.context.site, project=wanted.project, branch=wanted.branch, commit=wanted.commit,
        overrides=tuple(wanted.overrides), again=wanted.again, asked_by=caller.name,
    )  # fmt: skip
    return enqueue(service.context, order, key=idempotency_key)


def page_of(rows: list[RunRow], limit: int) -> tuple[list[RunRow], str | None]:
    """The first `limit` of rows, and the cursor of the next page; `rows` has one row more if there is one."""
    shown = rows[:limit]
    return shown, encode_cursor(shown[-1]) if len(rows) > limit else None


def encode_cursor(last: RunRow) -> str:
    """Cursor of the page that begins after `last`."""
    return base64.urlsafe_b64encode(json.dumps([last.created, last.run]).encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None) -> tuple[str, str] | None:
    """Raises RequestRefused for a cursor that this service did not return."""
    if cursor is None:
        return None
    try:
        created, run = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, TypeError, RecursionError) as error:
        raise RequestRefused(422, "before: wanted `next` of the page before") from error
    if not all(isinstance(each, str) and re.fullmatch(r"[ -~]{0,60}", each) for each in (created, run)):
        raise RequestRefused(422, "before: wanted `next` of the page before")
    return created, run


def header_text(text: str) -> str:
    """A sentence as a header may carry it."""
    return re.sub(r"[^ -~]", "?", text)[:300]
