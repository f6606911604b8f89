"""`/api/v1/runs/{run}`: one record, and requests to its run: cancel, approve."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from pydantic import Field
from starlette.responses import Response as Plain

from gangline.errors import IntegrityError, UsageError
from gangline.line.request import trust
from gangline.serve.api.dependencies import PLAIN, ApiModel, CallerDep, RunPath, ServiceDep, problems
from gangline.serve.api.service import Service
from gangline.serve.database.types import Principal
from gangline.serve.web.responses import RequestRefused
from gangline.signing.record_seal import Sealer
from gangline.spec.record import Record

router = APIRouter(prefix="/api/v1/runs/{run}", tags=["run"])

_RECORD = {"type": "object"}


class Reason(ApiModel):
    """Body of a request to cancel a run."""

    reason: str = Field("", max_length=200, pattern=PLAIN, description="Written to the record.")


class RunState(ApiModel):
    """State of a run."""

    run: str
    state: str
    verdict: str | None
    reason: str
    cancel_requested: str | None
    approved: str | None
    seq: int


@router.get(
    "",
    responses={
        200: {"description": "The record as it is in the store.", "content": {"application/json": {"schema": _RECORD}}},
        304: {"description": "It has not changed since `If-None-Match`"},
        **problems(404, 409, 503),
    },
    response_class=Plain,
)  # fmt: skip
def get_run(
    service: ServiceDep, run: RunPath, *, if_none_match: Annotated[str | None, Header(max_length=200)] = None
) -> Plain:
    """The record, byte for byte; its `ETag` is its `seq`."""
    blob, record = service.record_blob(run)
    etag = f'"{record.seq}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    if if_none_match is not None and etag in (part.strip() for part in if_none_match.split(",")):
        return Plain(status_code=304, headers=headers)
    return Plain(blob.data, media_type="application/json", headers=headers)


@router.post("/cancel", status_code=202, responses=problems(404, 409, 503))
def cancel_run(service: ServiceDep, caller: CallerDep, run: RunPath, wanted: Reason | None = None) -> RunState:
    """Cancel a run; returns when the request is in its record, before the gang has stopped. Harmless when repeated."""
    return state_of(stop(service, caller, run, wanted.reason if wanted else ""))


@router.post("/approve", responses=problems(404, 409, 503))
def approve_run(service: ServiceDep, caller: CallerDep, run: RunPath, response: Response) -> RunState:
    """Let the run of a fork's commit execute its code; read it first."""
    response.headers["Cache-Control"] = "no-store"
    return state_of(approve_fork_run(service, caller, run))


def stop(service: Service, caller: Principal, run: str, reason: str) -> Record:
    """Request that a run stops, from a page or the API."""
    record = service.record(run)
    with service.store():
        return service.stopper.stop(record, reason=reason_with_caller(caller, reason))


def reason_with_caller(caller: Principal, reason: str) -> str:
    """Who cancelled, and why."""
    return f"cancelled by {caller.name}" + (f": {reason}" if reason else "")


def approve_fork_run(service: Service, caller: Principal, run: str) -> Record:
    """Approve a fork's run and wake its order.

    Raises:
        RequestRefused: 409, there is nothing to approve, or the record does not hold.
    """
    record = service.record(run)
    try:
        with service.store() as store:
            sealer = Sealer.of(service.context.site, service.context.environ)
            approved = trust.approve(store, record, who=caller.name, sealer=sealer)
    except (UsageError, IntegrityError) as error:
        raise RequestRefused(409, str(error)) from error
    service.context.database.orders.unpark(run, now=service.context.clock())
    return approved


def state_of(record: Record) -> RunState:
    """The state of a run as the API shows it."""
    fields: dict[str, Any] = {
        name: getattr(record.run, name) for name in ("state", "verdict", "reason", "cancel_requested", "approved")
    }
    return RunState(run=record.run.id, seq=record.seq, **fields)
