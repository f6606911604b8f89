"""Sweep of all refs of all repositories every few minutes, for events that were never sent; deletes old orders.

The commit of a ref is offered once: a delivery of our own, named after ref and commit, remembers it. Refs that are
gone stop their runs, parked orders whose run was approved or has ended are woken, schedules start at their minute.
"""

import threading
import time
from hashlib import sha256

import structlog

from gangline.errors import GanglineError, IntegrityError, UsageError
from gangline.forge.protocol import RefHead
from gangline.git.clones import Clones
from gangline.line.record.runs import find_run
from gangline.line.request.trust import awaits_approval
from gangline.line.run import driver_process
from gangline.serve.context.service_context import ServiceContext
from gangline.serve.database.deliveries import REMEMBER_SECONDS
from gangline.serve.database.types import Order, RunFilter
from gangline.serve.orders.cancellation import stop_runs
from gangline.serve.orders.schedules import Schedules
from gangline.serve.orders.sources import CommitSource, all_sources

SWEEP_SECONDS = 300.0
SCHEDULE_SECONDS = 20.0
IDLE_CLONE_SECONDS = 86_400.0
FORGET_BATCH = 200
log = structlog.get_logger()


class Sweeper:
    """One thread of a service."""

    def __init__(self, context: ServiceContext, clones: Clones, schedules: Schedules) -> None:
        self._context, self._schedules = context, schedules
        self._stopping = threading.Event()
        self._clones = clones.until(self._stopping.is_set)
        self._thread = threading.Thread(target=self._loop, name="sweep", daemon=True)
        self._enqueued: set[str] = set()
        """Marks of what needs no second look, so that a sweep of a thousand refs writes nothing."""
        self._scheduled_until = context.clock() - SCHEDULE_SECONDS

    def start(self) -> None:
        self._thread.start()

    def close(self, seconds: float = 10.0) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def sweep(self) -> None:
        """Check every repository once; a failing one does not affect the others."""
        try:
            sources = all_sources(self._context)
        except GanglineError as error:
            log.warning("sources_not_read", cause=str(error))
            return
        for source in sources:
            try:
                self._sweep_source(source)
            except GanglineError as error:
                log.warning("repository_not_swept", project=source.project, cause=str(error))
        self._clean_up()

    def enqueue_due(self) -> None:
        """Queue what has come due since the last look, each minute of a schedule once."""
        now = self._context.clock()
        for name, order in self._schedules.due(since=self._scheduled_until, now=now):
            self._enqueue_once("schedule", name, order)
        self._scheduled_until = now

    def _loop(self) -> None:
        next_sweep = 0.0
        while not self._stopping.wait(1.0):
            try:
                if self._context.clock() - self._scheduled_until >= SCHEDULE_SECONDS:
                    self.enqueue_due()
                if time.monotonic() >= next_sweep:  # a clock that is set back puts no sweep off
                    self.sweep()
                    next_sweep = time.monotonic() + SWEEP_SECONDS
            except GanglineError as error:
                log.warning("not_swept", cause=str(error))
            except Exception:
                log.exception("sweep_broke")

    def _sweep_source(self, source: CommitSource) -> None:
        heads = source.heads(self._clones)
        refs_with_orders = self._refs_with_orders(source)
        runs = self._context.database.runs
        for ref, head in heads:
            built = RunFilter(project=source.project, commit=head.commit, limit=1)
            if ref not in refs_with_orders and not runs.search(built):
                self._enqueue_once("sweep", f"{source.url} {ref} {head.commit}", _order(source, ref, head))
        self._stop_deleted_refs(source, {ref for ref, _ in heads})

    def _refs_with_orders(self, source: CommitSource) -> set[str]:
        """Refs of the source that have an order which is queued, driven or parked."""
        states = ["queued", "driving", "parked"]
        orders = self._context.database.orders.list(states=states, projects=[source.project], limit=100_000)
        return {order.ref for order in orders if _is_at(order, source)}

    def _enqueue_once(self, kind: str, name: str, order: Order) -> None:
        mark = sha256(name.encode()).hexdigest()
        if mark in self._enqueued:
            return
        self._enqueued.add(mark)
        is_new = self._context.database.deliveries.take_in(
            forge=kind,
            delivery=mark,
            body_digest=mark,
            order=order,
            now=self._context.clock(),
            unless_queued=True,
        )
        if is_new:
            log.info("order_offered", cause=kind, project=order.project, ref=order.ref)

    def _stop_deleted_refs(self, source: CommitSource, refs: set[str]) -> None:
        """Stop the runs of refs that are gone, and their orders and schedules."""
        orders = self._context.database.orders.list(states=["driving", "parked"], projects=[source.project], limit=1000)
        for ref in {order.ref for order in orders if _is_at(order, source)} - refs:
            stop_runs(self._context, source.project, ref, reason=f"{ref} is gone")
        for scheduled in self._schedules.all():
            if scheduled.project == source.project and scheduled.ref not in refs and _is_at(scheduled.order(), source):
                self._schedules.forget(scheduled.project, scheduled.ref)

    def _clean_up(self) -> None:
        database, now = self._context.database, self._context.clock()
        self._unpark_ready()
        database.deliveries.forget(before=now - REMEMBER_SECONDS)
        self._forget_orders(before=now - self._context.site.serve.keep_orders_seconds)
        open_orders = database.orders.list(states=["queued", "driving", "parked"], projects=None, limit=100_000)
        commits = {order.commit for order in open_orders if order.commit}
        keep = [place for place in self._context.home.glob("clones/*/commits/*") if place.name in commits]
        if not any(order.commit is None and order.state == "driving" for order in open_orders):
            self._clones.release(idle_seconds=IDLE_CLONE_SECONDS, keep=keep)
        driver_process.remove_folders_except(
            self._context.home / "orders", {order.id for order in open_orders}, older_than=now - REMEMBER_SECONDS
        )

    def _forget_orders(self, before: float) -> None:
        """Forget old orders in small transactions, so that no delivery waits for them."""
        while not self._stopping.is_set() and self._context.database.orders.forget(before=before, limit=FORGET_BATCH):
            pass

    def _unpark_ready(self) -> None:
        """Orders of forks that were approved, or of runs that ended, without a delivery that says so."""
        for order in self._context.database.orders.list(states=["parked"], projects=None, limit=1000):
            if order.run is not None and order.not_before > self._context.clock() and self._can_continue(order.run):
                self._context.database.orders.unpark(order.run, now=self._context.clock())

    def _can_continue(self, run: str) -> bool:
        try:
            record = find_run(self._context.store, run)
        except (UsageError, IntegrityError):
            return True  # it was deleted, or cannot be read: the worker that takes the order up says so
        is_approved_fork = record.commit.trust == "fork" and not awaits_approval(record)
        return record.run.state == "ended" or is_approved_fork


def _order(source: CommitSource, ref: str, head: RefHead) -> Order:
    return Order(
        project=source.project, forge=source.forge.name if source.forge else None,
        repository=source.repository if source.forge else "", ref=ref, branch=head.branch,
        pull_request=head.pull_request, trust="fork" if head.is_fork else "own", cause="sweep", asked_by="sweep",
    )  # fmt: skip


def _is_at(order: Order, source: CommitSource) -> bool:
    name = source.forge.name if source.forge else None
    return order.project == source.project and order.forge == name
