"""`/api/v1/runs/{run}/events`: a run while it runs, as server-sent events."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.sse import format_sse_event
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from gangline.serve.api.dependencies import CallerDep, RunPath, ServiceDep, problems
from gangline.serve.api.service import Service
from gangline.serve.runs.watchers import RunEvent, Subscriber, end_event, record_event
from gangline.spec.record import Record
from gangline.spec.run_flags import is_reported

router = APIRouter(prefix="/api/v1/runs/{run}/events", tags=["run"])
MEDIA_TYPE = "text/event-stream"
HEARTBEAT_SECONDS = 15.0
RETRY_MILLISECONDS = 3000


@router.get(
    "",
    responses={
        200: {
            "description": "`record` when it changed (id: its seq), `progress` of the running stage, `end`.",
            "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
        },
        **problems(404, 409, 503),
    },
    response_class=StreamingResponse,
)  # fmt: skip
async def follow_run(
    service: ServiceDep,
    caller: CallerDep,
    run: RunPath,
    *,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
) -> StreamingResponse:
    """Follow a run; after a break, `Last-Event-ID` leaves out what was seen. A comment is sent every 15 s."""
    record = await run_in_threadpool(service.record, run)
    seen = int(last_event_id) if last_event_id and last_event_id.isascii() and last_event_id.isdigit() else -1
    service.slots.take(caller.name)
    headers = {"X-Accel-Buffering": "no"}  # a proxy between passes each event on
    return StreamingResponse(_stream(service, caller.name, record, seen), media_type=MEDIA_TYPE, headers=headers)


async def _stream(service: Service, caller: str, record: Record, seen: int) -> AsyncIterator[bytes]:
    run = record.run.id
    subscriber = Subscriber(asyncio.get_running_loop())
    try:
        yield format_sse_event(retry=RETRY_MILLISECONDS)
        if record.seq > seen:
            yield _as_event(record_event(record))
        if is_reported(record):
            yield _as_event(end_event(record))
            return
        service.watchers.subscribe(record, subscriber)
        while (event := await subscriber.next(HEARTBEAT_SECONDS)) is None or event.kind != "end":
            yield format_sse_event(comment="here") if event is None else _as_event(event)
        yield _as_event(event)
    finally:
        service.watchers.unsubscribe(run, subscriber)
        service.slots.give_back(caller)


def _as_event(event: RunEvent) -> bytes:
    number = None if event.seq is None else str(event.seq)
    return format_sse_event(event=event.kind, id=number, data_str=event.data)
