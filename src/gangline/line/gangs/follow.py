"""Following a gang to its end; meanwhile cancellation and Ctrl-C stop it, and its credentials are renewed.

Its servers and its warnings go into the record: whether nodes are where they were placed, and the sentence of each
event that is a warning. Every rank reports the same problem, and a second driver sees all events again: equal sentences
are one warning.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from gangline.errors import CancelledError, ConfigError, GanglineError, StillRunning, StorageError
from gangline.fabric.placement.order import verify
from gangline.fabric.probe.measured_links import LinkMeasurement, with_speeds
from gangline.fabric.traffic.rings import rank_table
from gangline.launch.protocol import Gang, GangEvent, GangGone, GangStatus
from gangline.line.gangs.stated_network import read_measurement
from gangline.line.record.context import RunContext
from gangline.spec.gang.status import GangEnd, saved_text
from gangline.spec.measurements import RankOrder, SplitTile
from gangline.spec.record import NOT_JUDGED, SLOW, SPLIT, STOPPED, Artifact, GangInfo, Record, Waiting
from gangline.storage.objects.blobs import PREFIX, put_blob
from gangline.units import format_seconds, now

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


_SHOWN = 4
"""Tiles, and groups of each."""
_KEPT_BY_VOLCANO = (
    "; Volcano keeps them only where its scheduler has the plugin network-topology-aware (volcano-scheduler.conf) and"
    " HyperNodes of tier 1 are these groups; configure both, then run it again"
)


def rank_order(ctx: RunContext, stage: str, status: GangStatus) -> RankOrder | None:
    """Order of its nodes, with events of what is not as planned; None: their places or servers are not known."""
    if not status.placed or len(status.placed) != len(status.servers):
        return None
    order = with_speeds(verify(status.placed, status.servers, tile=status.tile), _measured_links(ctx))
    if order.num_moved:
        first = order.moved[0]
        ctx.record_event(
            stage,
            "placement",
            f"{order.num_moved} of {len(status.servers)} nodes run on other servers than {status.placed_by} gave them,"
            f" as node {first.node_rank} on {first.found} instead of {first.placed}",
        )
    if order.num_split:
        how = _KEPT_BY_VOLCANO if ctx.site.launch.route == "volcano" else ""
        ctx.record_event(stage, SPLIT, _split_words(order, status) + how)
    return order


def rank_tables(ctx: RunContext, status: GangStatus) -> tuple[Artifact, ...]:
    """Where each rank is and what its leaf carries, for readers of switches' counters; none: groups are not known."""
    groups = {server.name: f"{server.block}/{server.group}" for server in status.placed if server.group}
    procs = ctx.output("plan", "procs_per_node")
    if not (procs and groups and groups.keys() >= set(status.servers)):
        return ()
    data = rank_table(status.servers, groups, ranks_per_server=int(procs)).encode()
    key = put_blob(ctx.store, data)
    digest = key.removeprefix(PREFIX)
    return (Artifact(kind="ranks", key=key, media_type="text/csv", size_bytes=len(data), sha256=digest),)


def _split_words(order: RankOrder, status: GangStatus) -> str:
    """Which tiles are in which groups."""
    tiles = -(-len(status.servers) // status.tile)
    shown = _first([_tile_words(tile) for tile in order.split], order.num_split or 0)
    verb = "does" if order.num_split == 1 else "do"
    return (
        f"{order.num_split} of {tiles} tiles of {status.tile} nodes {verb} not share a group of servers as the plan"
        f" wants: {', '.join(shown)}"
    )


def _first(words: list[str], count: int) -> list[str]:
    """The first of `count` words, and how many are left out."""
    return words[:_SHOWN] + ([f"{count - _SHOWN} more"] if count > _SHOWN else [])


def _tile_words(tile: SplitTile) -> str:
    names = [name.removeprefix("/") for name in tile.groups]
    return f"nodes {tile.first} to {tile.last} on {' and '.join(_first(names, len(names)))}"


def _measured_links(ctx: RunContext) -> LinkMeasurement | None:
    """None: nothing was measured, or it cannot be read, for which no run fails."""
    try:
        return read_measurement(ctx.store)
    except GanglineError:
        return None


WORKER_SLOW = "worker_slow"
_SLOWNESS = (SLOW, NOT_JUDGED, WORKER_SLOW)


def warning_of(event: GangEvent) -> str | None:
    """The warning of an event; None if it is no problem, or comes with the gang's end."""
    if event.kind == "restart":
        return f"restart {event.data.get('generation')}: {event.text}"
    if event.data.get("event") == "resized":
        return f"generation {event.data.get('generation')}: {event.text}"
    if event.data.get("event") in ("tiles_not_known", "evicted"):
        return event.text
    write = _WARNINGS.get(event.text)
    return write(event.data) if write is not None else None


Data = Mapping[str, Any]


def _checkpoint_refused(data: Data) -> str:
    return f"checkpoint refused, trying an older one: {data.get('file')}: {data.get('reason')}"


def _save_failed(data: Data) -> str:
    return f"the checkpoint of step {data.get('step')} could not be saved: {data.get('reason')}"


def _metrics_not_served(data: Data) -> str | None:
    """Every rank reports this for itself; one warning is enough."""
    return f"training continues without: {data.get('reason')}" if data.get("rank") == 0 else None


def _non_finite(data: Data) -> str | None:
    if data.get("answer") == "stop":
        return None
    return f"step {data.get('step')} was not finite, the answer is {data.get('answer')}"


def _slow(data: Data) -> str:
    """Which rank slows the gang down, by how much, and in which phase."""
    longer = f"{float(data.get('ratio') or 1.0):.2f} times as long as the others"
    cost = f"{float(data.get('seconds') or 0.0) * 1e3:.1f} ms a step, most of it in {data.get('phase')}"
    return f"rank {data.get('slow')} on node {data.get('node')} is slow since step {data.get('step')}: {longer}, {cost}"


def _no_longer_slow(data: Data) -> str:
    return f"rank {data.get('slow')} is as fast as the others again, at step {data.get('step')}"


def _slow_answer(data: Data) -> str:
    """How the gang responds to a slow rank."""
    return f"step {data.get('step')}: {data.get('reason')}"


def _not_judged(data: Data) -> str:
    return str(data.get("reason"))


def _worker_silent(data: Data) -> str:
    silent = format_seconds(float(data.get("seconds") or 0.0))
    return f"worker {data.get('worker')} has pushed nothing for {silent}; the others train on"


def _worker_back(data: Data) -> str:
    """How long a worker was missed, and how long it had no answer of the store, as it measured it."""
    away, without = (float(data.get(name) or 0.0) for name in ("seconds", "without_store"))
    why = f"; the store gave it no answer for {format_seconds(without)}" if without else ""
    return f"worker {data.get('worker')} pushes again after {format_seconds(away)}{why}"


def _worker_slow(data: Data) -> str:
    ratio = float(data.get("ratio") or 1.0)
    return f"worker {data.get('worker')} is slow: its blocks take {ratio:.1f} times as long as those of the others"


def _version_damaged(data: Data) -> str:
    return f"the newest version of shard {data.get('shard')} is damaged, the one before is taken: {data.get('reason')}"


_WARNINGS: dict[str, Callable[[Data], str | None]] = {
    "checkpoint_refused": _checkpoint_refused, "save_failed": _save_failed, "metrics_not_served": _metrics_not_served,
    "non_finite": _non_finite, SLOW: _slow, "straggler_over": _no_longer_slow, "straggler_answered": _slow_answer,
    NOT_JUDGED: _not_judged, "worker_silent": _worker_silent, "worker_back": _worker_back,
    WORKER_SLOW: _worker_slow, "version_damaged": _version_damaged,
}  # fmt: skip
"""Function that words a warning, by the name of the event."""


def record_warning(ctx: RunContext, stage: str, event: GangEvent) -> None:
    """Send the warning of `event`, if it has one, to the observer and the record; equal warnings once."""
    warning = warning_of(event)
    if warning is not None and not any(warning == each.text for each in (*ctx.record.events, *ctx.pending)):
        ctx.record_event(stage, SLOW if event.text in _SLOWNESS else "trouble", warning)
