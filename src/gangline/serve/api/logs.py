"""`/api/v1/runs/{run}/logs`: what ranks wrote, as lines of JSON, from the gang while it is there, else the store.

A thread reads them, no faster than the client takes them.
"""

import asyncio
import contextlib
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Annotated, Generic, Literal, TypeVar

from fastapi import APIRouter, Header, Query
from pydantic import Field
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from gangline.errors import UsageError
from gangline.launch.protocol import LogLine
from gangline.line.gangs.launchers import open_launcher
from gangline.line.gangs.logs import gang_of_role, parse_since, stored_lines
from gangline.line.request.targets import site_of
from gangline.report.text import visible
from gangline.serve.api.dependencies import ApiModel, CallerDep, RunPath, ServiceDep, problems
from gangline.serve.api.service import Service
from gangline.serve.runs.run_stopper import gangs_folder
from gangline.serve.web.responses import RequestRefused
from gangline.spec.record import Record

router = APIRouter(prefix="/api/v1/runs/{run}/logs", tags=["run"])
MEDIA_TYPE = "application/jsonl"
HEARTBEAT_SECONDS = 15.0
MOST_LINES = 10_000
MOST_CHARACTERS = 20_000
"""Most characters of one line."""


_ROLE = "^(train|evaluate|prove|seed-[0-9]{1,19})$"


class RankLogLine(ApiModel):
    """One line of the answer."""

    rank: int
    text: str
    source: Literal["live", "store"]


@router.get(
    "",
    responses={
        200: {"description": "A `Line` a line.", "content": {MEDIA_TYPE: {"schema": RankLogLine.model_json_schema()}}},
        **problems(404, 409, 503),
    },
    response_class=Response,
)  # fmt: skip
def get_logs(
    service: ServiceDep,
    caller: CallerDep,
    run: RunPath,
    *,
    rank: Annotated[list[Annotated[int, Field(ge=0, le=1_000_000)]] | None, Query(max_length=64)] = None,
    role: Annotated[str, Query(pattern=_ROLE, description="train, evaluate, prove, or seed-2 of a program.")] = "train",
    since: Annotated[str | None, Query(max_length=20, description="The last while: 90s, 5m, 2h.")] = None,
    tail: Annotated[int, Query(ge=1, le=MOST_LINES, description="Last lines, of all ranks together.")] = 1000,
    follow: Annotated[bool, Query(description="Follow the gang while it runs, with blank lines in pauses.")] = False,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> Response:
    """Lines of some ranks, rank 0 where none is named; a browser gets them as plain text."""
    record = service.record(run)
    try:
        gang, seconds = gang_of_role(record, role), parse_since(since)
    except UsageError as error:
        raise RequestRefused(409 if record.gang is None else 422, str(error)) from error
    read = partial(_lines, service, record, gang, role, ranks=tuple(rank or (0,)), since_seconds=seconds)
    if follow:
        service.slots.take(caller.name)
        return StreamingResponse(_followed(service, partial(read, follow=True), caller.name), media_type=MEDIA_TYPE)
    lines = deque(read(follow=False), maxlen=tail)
    if "text/html" in (accept or ""):  # a link of a page was followed
        return PlainTextResponse("".join(f"r{line.rank:02d}│ {visible(line.text)}\n" for line in lines))
    return Response("".join(map(_as_json, lines)), media_type=MEDIA_TYPE)


def _lines(
    service: Service, record: Record, gang: str, role: str, *, ranks: tuple[int, ...], since_seconds: float | None,
    follow: bool,
) -> Iterator[LogLine]:  # fmt: skip
    """Lines from the gang, or from the store if this machine has no gang of that name."""
    context = service.context
    with service.store() as store:
        launcher = open_launcher(
            gangs_folder(context, record), site=site_of(record, context.site), environ=context.environ, store=store
        )
        if launcher.status(gang).state != "absent":
            yield from launcher.logs(gang, ranks=ranks, since_seconds=since_seconds, follow=follow)
            return
        for rank in ranks:
            lines = stored_lines(store, record.gang_prefix, role, rank)
            yield from (LogLine(rank=rank, text=text, source="store") for text in lines)


async def _followed(service: Service, read: Callable[[], Iterator[LogLine]], caller: str) -> AsyncIterator[str]:
    try:
        async for line in IteratorStream(read).items(beat_seconds=HEARTBEAT_SECONDS):
            yield "\n" if line is None else _as_json(line)
    finally:
        service.slots.give_back(caller)


def _as_json(line: LogLine) -> str:
    shown = {"rank": line.rank, "text": line.text[:MOST_CHARACTERS], "source": line.source}
    return json.dumps(shown, ensure_ascii=True) + "\n"


T = TypeVar("T")
QUEUE_SIZE = 64
"""Items that are read ahead."""


class _End:
    """End of the stream, with the error if there was one."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error


class IteratorStream(Generic[T]):
    """One stream; when its client goes, the thread ends at the next item."""

    def __init__(self, make: Callable[[], Iterator[T]]) -> None:
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[T | _End] = asyncio.Queue(QUEUE_SIZE)
        self._gone = threading.Event()

    async def items(self, *, beat_seconds: float) -> AsyncIterator[T | None]:
        """Everything that the iterator gives; None after so many seconds without it, so that a lost client shows.

        Raises:
            Exception: Whatever the iterator raised.
        """
        threading.Thread(target=self._read, name="pump", daemon=True).start()
        try:
            while True:
                item = await self._next(beat_seconds)
                if isinstance(item, _End):
                    break
                yield item
        finally:
            self._gone.set()
            while not self._queue.empty():
                self._queue.get_nowait()
        if item.error is not None:
            raise item.error

    async def _next(self, seconds: float) -> T | _End | None:
        try:
            return await asyncio.wait_for(self._queue.get(), seconds)
        except TimeoutError:
            return None

    def _read(self) -> None:
        with contextlib.suppress(RuntimeError, asyncio.CancelledError):  # the loop has ended, and the client with it
            try:
                for item in self._make():
                    if self._gone.is_set():
                        return
                    self._put(item)
            except Exception as error:
                self._put(_End(error))
            else:
                self._put(_End())

    def _put(self, item: T | _End) -> None:
        asyncio.run_coroutine_threadsafe(self._queue.put(item), self._loop).result()
