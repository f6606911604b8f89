"""Following a gang to its end; meanwhile cancellation and Ctrl-C stop it, and its credentials are renewed."""

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from gangline.errors import CancelledError, ConfigError, GanglineError, StillRunning, StorageError
from gangline.launch.protocol import Gang, GangEvent, GangGone, GangStatus
from gangline.line.gangs.servers import rank_order, rank_tables
from gangline.line.gangs.warnings import record_warning
from gangline.line.record.context import RunContext
from gangline.spec.gang.status import GangEnd, saved_text
from gangline.spec.record import STOPPED, GangInfo, Record, Waiting
from gangline.units import now

WATCH_SECONDS = 1.0
WAITING_SECONDS = 10.0
RENEW_SECONDS = 300.0
"""A third of the life of the shortest-lived credential."""
RENEW_AGAIN_SECONDS = 60.0


class Interrupted(CancelledError):
    """Ctrl-C at the terminal stopped a local gang; the run stays open and can be resumed."""


class GangUnreachable(ConfigError):
    """A running gang cannot be reached from here; the run stays open until the cause is fixed."""


def follow(ctx: RunContext, name: str, gang: str, *, restarts: int = 0) -> GangEnd:
    """Forward the events of `gang`, before which there were `restarts`, to the observer until it has ended.

    Raises:
        CancelledError: The run was cancelled or superseded; the gang is stopped.
        GangGone: The repository was deleted, or the gang's folder in it; the gang does not run any more.
        Interrupted: Ctrl-C; the gang, of this machine, was stopped with a checkpoint.
        GangUnreachable: This driver cannot reach the gang any more; it is still running.
        StillRunning: The driver's time is up; the gang is still running.
        KeyboardInterrupt: Ctrl-C; the gang, of a cluster, is still running and is found again by the run id.
    """
    try:
        with _watched(ctx, gang):
            end = _forward(ctx, name, gang, restarts)
    except GangGone:
        raise
    except ConfigError as error:  # problems of the gang itself come with its end
        raise GangUnreachable(
            f"gang {gang} is still running but cannot be reached: {error}; fix this, then gangline run resumes"
            f" {ctx.record.run.id}"
        ) from error
    except KeyboardInterrupt:
        if not ctx.record.run.launcher.is_here:
            raise
        text = f"stopping gang {gang}, with a checkpoint if its program saves; Ctrl-C again leaves it running"
        ctx.observer.note(text)
        ctx.launcher.cancel(gang, reason="interrupted at the terminal", save=True)
        text = f"stopped by Ctrl-C; {stopped_text(ctx.launcher.collect(gang))}"
        ctx.record_event(name, STOPPED, text, notify=False)
        raise Interrupted(f"{text}; gangline run resumes {ctx.record.run.id}") from None
    if reason := ctx.cancel_requested():
        raise CancelledError(f"{ctx.record.run.id} was stopped: {reason}; {stopped_text(end)}")
    return end


def stopped_text(end: GangEnd) -> str:
    """What a gang had saved when it was stopped; one that ended otherwise says how."""
    if end.exit_code == CancelledError.exit_code:
        return saved_text(end.step, end.saved_step)
    return f"its gang had ended: {end.reason}"


def earlier_end(ctx: RunContext, gang: Gang) -> GangEnd | None:
    """End of a gang that an earlier driver started and that has ended since; None if it is new or still running."""
    if not gang.adopted:
        return None
    end: GangEnd | None = None
    with suppress(StillRunning):
        end = ctx.launcher.collect(gang.name)
    if ctx.stage_time is not None:
        ctx.stage_time.gang_found(end.time if end else None)
    return end


def _forward(ctx: RunContext, name: str, gang: str, restarts: int) -> GangEnd:
    recorded_at = 0.0
    for event in _events_in_time(ctx, ctx.launcher.follow(gang)):
        ctx.observer.progress(name, event)
        record_warning(ctx, name, event)
        if event.end is not None:
            return event.end
        if event.kind == "waiting" and time.monotonic() - recorded_at > WAITING_SECONDS:
            recorded_at = time.monotonic()
            _record_waiting(ctx, event.waiting)
        if event.kind == "state" and event.status is not None:
            _record_start(ctx, name, gang, event.status, restarts)
    return ctx.launcher.collect(gang)


def _events_in_time(ctx: RunContext, events: Iterator[GangEvent]) -> Iterator[GangEvent]:
    """`events` until the last one; raises StillRunning when the driver's time is up."""
    if ctx.follow_until is None:
        yield from events
        return
    with read_in_background(events) as items:
        while True:
            try:
                item = items.get(timeout=max(ctx.follow_until - time.monotonic(), 0.0))
            except queue.Empty:
                raise StillRunning(f"{ctx.record.run.id} is still running; call again to follow it further") from None
            if isinstance(item, Exception):
                raise item
            if item is None:
                return
            yield item
            if item.end is not None:
                return


@contextmanager
def read_in_background(events: Iterator[GangEvent]) -> "Iterator[queue.Queue[GangEvent | Exception | None]]":
    """Events from a thread, for callers that wait for a limited time: a silent gang yields nothing.

    The last item is None, or the exception that `events` raised.
    """
    items: queue.Queue[GangEvent | Exception | None] = queue.Queue()
    over = threading.Event()

    def read_events() -> None:
        try:
            for event in events:
                items.put(event)
                if over.is_set():
                    return
            items.put(None)
        except Exception as error:  # raised where the events are read
            items.put(error)

    threading.Thread(target=read_events, name="events", daemon=True).start()
    try:
        yield items
    finally:
        over.set()


def _record_start(ctx: RunContext, name: str, gang: str, status: GangStatus, restarts: int) -> None:
    """Write into the record when the training gang was admitted and started, its servers, and each restart."""
    recorded = ctx.record.gang
    if recorded is None or recorded.name != gang:
        return
    info = replace(recorded, restarts=max(recorded.restarts, restarts + status.restarts))
    if status.state == "running" or status.servers:
        info = replace(info, admitted=info.admitted or now())
    if _has_started(recorded, status):
        order = rank_order(ctx, name, status)
        info = replace(info, released=info.released or now(), servers=status.servers, order=order, waiting=None)
    if info != recorded:
        tables = rank_tables(ctx, status) if info.order != recorded.order else ()
        ctx.change(lambda record: replace(record, gang=info, artifacts=(*record.artifacts, *tables)))


def _has_started(recorded: GangInfo, status: GangStatus) -> bool:
    """Whether `status` adds a start, other servers or their groups; a short gang may first be seen when it stops."""
    if status.state == "running":
        is_placed_since = recorded.order is None and bool(status.placed)
        return not recorded.released or recorded.servers != status.servers or is_placed_since
    return status.state in ("stopping", "ended") and not recorded.released and bool(status.servers)


def _record_waiting(ctx: RunContext, waiting: Waiting) -> None:
    def change(record: Record) -> Record:
        return record if record.gang is None else replace(record, gang=replace(record.gang, waiting=waiting))

    ctx.change(change)


@contextmanager
def _watched(ctx: RunContext, gang: str) -> Iterator[None]:
    """While the block runs, cancel `gang` when the record requests it, and renew its credentials."""
    over = threading.Event()
    threads = [
        threading.Thread(target=work, args=(ctx, gang, over), name=work.__name__.strip("_"), daemon=True)
        for work in (_cancel_on_request, _renew)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _cancel_on_request(ctx: RunContext, gang: str, over: threading.Event) -> None:
    while not over.wait(WATCH_SECONDS):
        try:
            if reason := ctx.cancel_requested():
                ctx.launcher.cancel(gang, reason=reason, save=True)
                return
        except StorageError:
            continue  # the store is away: read again in a second


def _renew(ctx: RunContext, gang: str, over: threading.Event) -> None:
    """Renew at once, because the credentials of an adopted gang may be old, then periodically."""
    pause = 0.0
    while not over.wait(pause):
        try:
            ctx.launcher.renew(gang)
            pause = RENEW_SECONDS
        except GanglineError as error:
            pause = RENEW_AGAIN_SECONDS
            ctx.observer.note(f"the credentials of gang {gang} could not be renewed, trying again: {error}")
