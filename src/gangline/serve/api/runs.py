"""`/api/v1/runs`: the list, with filters and pages, and starting a run."""

import base64
import json
import re
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Response
from pydantic import Field

from gangline.serve import ordering
from gangline.serve.access import readable
from gangline.serve.api.given import PROJECT, Caller, Given, Model, Text, problems
from gangline.serve.problems import Refused
from gangline.serve.quarantine import RefusedRecord
from gangline.serve.types import Order, RunFilter, RunRow

router = APIRouter(prefix="/api/v1", tags=["runs"])
MOST_ROWS = 200
STALE = "Gangline-Stale"
"""Header of answers that were drawn while the store was away: why."""
Word = Literal["open", "passed", "refused", "failed", "cancelled", "superseded"]


class RunPage(Model):
    """Runs, newest first."""

    runs: list[RunRow]
    next: str | None = Field(description="Give it as `before` for the page after this one; null: this is the last.")
    refused: list[RefusedRecord] = Field(description="Keys of these projects where no record can be read, and why.")


class Start(Model):
    """What to build."""

    project: str = Field(pattern=PROJECT, examples=["bytegpt"])
    branch: str = Field(max_length=200, pattern=ordering.BRANCH, examples=["main"])
    commit: str | None = Field(
        None, pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$", description="Full object name; null: what stands at the branch."
    )
    overrides: list[Annotated[str, Field(max_length=200, pattern=ordering.OVERRIDE)]] = Field(
        [], max_length=32, examples=[["train.seed=2"]]
    )
    again: bool = Field(False, description="The next attempt, where this question was answered before.")


@router.get("/runs", responses=problems())
def list_runs(
    service: Given,
    caller: Caller,
    response: Response,
    *,
    project: Annotated[str | None, Query(pattern=PROJECT)] = None,
    branch: Text = None,
    commit: Annotated[
        str | None, Query(pattern=r"^[0-9a-f]{1,64}$", description="Beginning of an object name.")
    ] = None,
    verdict: Annotated[Word | None, Query()] = None,
    pull_request: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    text: Text = None,
    before: Annotated[str | None, Query(max_length=400, description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 50,
) -> RunPage:
    """Runs of the projects that you may read."""
    wanted = RunFilter(
        projects=readable(caller), project=project, branch=branch, commit=commit, verdict=verdict,
        pull_request=pull_request, text=text, before=decode_cursor(before), limit=limit + 1,
    )  # fmt: skip
    rows, following = page_of(service.desk.database.runs.search(wanted), limit)
    if (said := service.health.trouble()) is not None:
        response.headers[STALE] = header_text(said)
    refused = [each for each in service.desk.quarantine.listed(wanted.projects) if project in (None, each.project)]
    return RunPage(runs=rows, next=following, refused=refused[:MOST_ROWS])


@router.post("/runs", status_code=202, responses=problems(404, 409))
def start_run(
    service: Given,
    caller: Caller,
    wanted: Start,
    *,
    idempotency_key: Annotated[
        str | None, Header(min_length=8, max_length=100, pattern=r"^[\x21-\x7e]+$", description="Yours, of one start.")
    ] = None,
) -> Order:
    """Queue a run; a repeat with the same `Idempotency-Key` answers the first one's order."""
    if not caller.may("reader", wanted.project) or wanted.project not in service.desk.project_names():
        raise Refused(404, f"this service builds no project {wanted.project} that you may read")
    if not caller.may("runner", wanted.project):
        raise Refused(403, f"wanted runner of {wanted.project}; ask whoever gives tokens here")
    order = ordering.order_of(
        service.desk.site, project=wanted.project, branch=wanted.branch, commit=wanted.commit,
        overrides=tuple(wanted.overrides), again=wanted.again, asked_by=caller.name,
    )  # fmt: skip
    return ordering.queue(service.desk, order, key=idempotency_key)


def page_of(rows: list[RunRow], limit: int) -> tuple[list[RunRow], str | None]:
    """The first `limit` of rows, and where the page after them begins; one row more was asked for."""
    shown = rows[:limit]
    return shown, encode_cursor(shown[-1]) if len(rows) > limit else None


def encode_cursor(last: RunRow) -> str:
    return base64.urlsafe_b64encode(json.dumps([last.created, last.run]).encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None) -> tuple[str, str] | None:
    """Raises Refused for what no answer of ours said."""
    if cursor is None:
        return None
    try:
        created, run = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, TypeError, RecursionError) as error:
        raise Refused(422, "before: wanted `next` of the page before") from error
    if not all(isinstance(each, str) and re.fullmatch(r"[ -~]{0,60}", each) for each in (created, run)):
        raise Refused(422, "before: wanted `next` of the page before")
    return created, run


def header_text(text: str) -> str:
    """A sentence as a header may carry it."""
    return re.sub(r"[^ -~]", "?", text)[:300]
