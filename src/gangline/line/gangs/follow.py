"""Following a gang to its end, while `gangline cancel` and Ctrl-C are obeyed and its credentials renewed."""

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from gangline.errors import CancelledError, ConfigError, GanglineError, StillRunning, StorageError
from gangline.launch.protocol import Gang, GangEvent, GangGone, GangStatus
from gangline.line.gangs.warnings import record_warning
from gangline.line.record.context import RunContext
from gangline.spec.gang.status import GangEnd
from gangline.spec.record import GangInfo, Record, Waiting
from gangline.units import now

WATCH_SECONDS = 1.0
WAITING_SECONDS = 10.0
RENEW_SECONDS = 300.0
"""A third of what the shortest-lived credential lasts."""
RENEW_AGAIN_SECONDS = 60.0


class Interrupted(CancelledError):
    """The person at the terminal stopped a local gang; the run stays open and resumes."""


class GangUnreachable(ConfigError):
    """A gang that goes on cannot be followed from here; the run stays open, until the way to it is put right."""


def follow(ctx: RunContext, name: str, gang: str) -> GangEnd:
    """Pass the events of `gang` on to the observer until it has ended.

    Raises:
        CancelledError: The run was cancelled or superseded; the gang is stopped.
        GangGone: The repository was deleted, or the gang's folder in it; nothing of the gang runs any more.
        Interrupted: Ctrl-C; a gang of this machine is stopped with a checkpoint.
        LostSight: This driver is not let near the gang any more, which goes on.
        StillRunning: The driver's time is up; the gang goes on.
        KeyboardInterrupt: Ctrl-C; a gang elsewhere goes on, and is found again by the run id.
    """
    try:
        with _obeying(ctx, gang):
            end = _pass_on(ctx, name, gang)
    except GangGone:
        raise
    except ConfigError as error:  # what is wrong with a gang itself is told by its end
        run = ctx.record.run.id
        raise GangUnreachable(
            f"gang {gang} goes on, but not before our eyes: {error}; put that right, then gangline run finds {run}"
        ) from error
    except KeyboardInterrupt:
        if ctx.record.run.target != "local":
            raise
        ctx.observer.note(f"stopping gang {gang} with a checkpoint; Ctrl-C again leaves it alone")
        ctx.launcher.cancel(gang, reason="interrupted at the terminal", save=True)
        raise Interrupted(f"stopped by Ctrl-C; gangline run goes on with {ctx.record.run.id} where it stands") from None
    if reason := ctx.cancel_requested():
        raise CancelledError(f"{ctx.record.run.id} was stopped: {reason}")
    return end


def earlier_end(ctx: RunContext, gang: Gang) -> GangEnd | None:
    """How a gang that stood there already has ended: its course was seen by an earlier driver."""
    if not gang.adopted:
        return None
    end: GangEnd | None = None
    with suppress(StillRunning):
        end = ctx.launcher.collect(gang.name)
    if ctx.stage_time is not None:
        ctx.stage_time.gang_found(end.time if end else None)
    return end


def _pass_on(ctx: RunContext, name: str, gang: str) -> GangEnd:
    told = 0.0
    for event in _in_time(ctx, ctx.launcher.follow(gang)):
        ctx.observer.progress(name, event)
        record_warning(ctx, name, event)
        if event.end is not None:
            return event.end
        if event.kind == "waiting" and time.monotonic() - told > WAITING_SECONDS:
            told = time.monotonic()
            _note_waiting(ctx, Waiting(who=event.text, until=event.data.get("until") or None))
        if event.kind == "state" and event.status is not None:
            _note_start(ctx, gang, event.status)
    return ctx.launcher.collect(gang)


def _in_time(ctx: RunContext, events: Iterator[GangEvent]) -> Iterator[GangEvent]:
    """`events` until the driver's time is up; they are waited for elsewhere, as a silent gang yields nothing."""
    if ctx.follow_until is None:
        yield from events
        return
    box: queue.Queue[GangEvent | Exception] = queue.Queue()
    over = threading.Event()
    threading.Thread(target=_feed, args=(events, box, over), name="feed", daemon=True).start()
    try:
        while True:
            item = _next_of(box, ctx)
            if isinstance(item, Exception):
                raise item
            yield item
            if item.end is not None:
                return
    finally:
        over.set()


def _feed(events: Iterator[GangEvent], box: "queue.Queue[GangEvent | Exception]", over: threading.Event) -> None:
    try:
        for event in events:
            box.put(event)
            if over.is_set():
                return
    except Exception as error:  # whatever it is, it is raised where the events are read
        box.put(error)


def _next_of(box: "queue.Queue[GangEvent | Exception]", ctx: RunContext) -> GangEvent | Exception:
    assert ctx.follow_until is not None
    try:
        return box.get(timeout=max(ctx.follow_until - time.monotonic(), 0.0))
    except queue.Empty:
        raise StillRunning(f"{ctx.record.run.id} goes on: ask again, its gang is found by the run id") from None


def _note_start(ctx: RunContext, gang: str, status: GangStatus) -> None:
    """The record learns once when the training gang was admitted, where it runs and since when; it waits no more."""
    standing = ctx.record.gang
    if standing is None or standing.name != gang:
        return
    known = standing
    if status.state == "running" or status.servers:
        known = replace(known, admitted=known.admitted or now())
    if _is_news(standing, status):
        known = replace(known, released=known.released or now(), servers=status.servers, waiting=None)
    if known != standing:
        ctx.change(lambda record: replace(record, gang=known))


def _is_news(standing: GangInfo, status: GangStatus) -> bool:
    """A short gang may first be seen as it leaves: then its servers tell that it was there."""
    if status.state == "running":
        return not standing.released or standing.servers != status.servers
    return status.state in ("stopping", "ended") and not standing.released and bool(status.servers)


def _note_waiting(ctx: RunContext, waiting: Waiting) -> None:
    def change(record: Record) -> Record:
        return record if record.gang is None else replace(record, gang=replace(record.gang, waiting=waiting))

    ctx.change(change)


@contextmanager
def _obeying(ctx: RunContext, gang: str) -> Iterator[None]:
    """While the block runs, stop `gang` as soon as the record asks for it, and keep its credentials alive."""
    over = threading.Event()
    threads = [
        threading.Thread(target=work, args=(ctx, gang, over), name=work.__name__.strip("_"), daemon=True)
        for work in (_obey, _renew)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _obey(ctx: RunContext, gang: str, over: threading.Event) -> None:
    while not over.wait(WATCH_SECONDS):
        try:
            if reason := ctx.cancel_requested():
                ctx.launcher.cancel(gang, reason=reason, save=True)
                return
        except StorageError:
            continue  # the gang goes on without its store, and is asked about again


def _renew(ctx: RunContext, gang: str, over: threading.Event) -> None:
    """At once, too: whoever follows a gang that stood there does not know how old its credentials are."""
    pause = 0.0
    while not over.wait(pause):
        try:
            ctx.launcher.renew(gang)
            pause = RENEW_SECONDS
        except GanglineError as error:
            pause = RENEW_AGAIN_SECONDS
            ctx.observer.note(f"the credentials of gang {gang} could not be renewed, trying again: {error}")
