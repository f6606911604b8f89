"""Worker threads that process orders under renewed leases, and the order service that starts them with the sweep.

An order that fails, whatever it raises, is settled by itself: the thread continues with the next one.
"""

import os
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from gangline.errors import GanglineError, IntegrityError, UsageError
from gangline.git.clones import Clones
from gangline.line.record.runs import find_run
from gangline.line.request.trust import awaits_approval
from gangline.line.run.driver_process import PROGRAM
from gangline.sanitize import clean
from gangline.serve.context.service_context import ServiceContext
from gangline.serve.database.types import Order
from gangline.serve.orders.order_runner import OrderRunner, RunnerContext, RunnerStopped
from gangline.serve.orders.retry_policy import after_failure
from gangline.serve.orders.schedules import Schedules
from gangline.serve.orders.searches import SEARCH_PROGRAM
from gangline.serve.orders.sweep import Sweeper

LEASE_SECONDS = 60.0
RENEW_SECONDS = 15.0
IDLE_SECONDS = 1.0
"""Time between two looks at an empty queue."""
RETRY_SECONDS = 2.0
log = structlog.get_logger()


class Workers:
    """The workers of one service."""

    def __init__(self, shared: RunnerContext) -> None:
        self._shared, self._context, self._stopping = shared, shared.context, shared.stopping
        self._holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._busy: list[OrderRunner] = []  # two of one order, where it is woken and runs again while it is parked
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        for number in range(self._context.site.serve.workers):
            self._run(self._work, f"worker-{number}")
        self._run(self._work_on_newer, "relief")
        self._run(self._renew, "order-leases")

    def close(self, seconds: float = 10.0) -> None:
        """Start no more orders and return; started drivers keep running."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(seconds)

    def driving(self) -> list[Order]:
        """Orders that this service holds now."""
        with self._lock:
            return [runner.order for runner in self._busy]

    def _run(self, target: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while not self._stopping.is_set():
            order = self._claim(self._context.database.orders.claim, max_driving=self._context.site.limits.active_runs)
            if order is None:
                self._stopping.wait(IDLE_SECONDS)
            else:
                self._process(order)

    def _work_on_newer(self) -> None:
        """Orders that replace, delete or close something do not wait where all workers follow long runs."""
        while not self._stopping.wait(IDLE_SECONDS):
            are_busy = len(self.driving()) >= self._context.site.serve.workers
            order = self._claim(self._context.database.orders.claim_newer) if are_busy else None
            if order is not None:
                self._process(order, follows=False)

    def _claim(self, claim: Callable[..., Order | None], **limit: int | None) -> Order | None:
        try:
            return claim(holder=self._holder, now=self._context.clock(), lease_seconds=LEASE_SECONDS, **limit)
        except GanglineError as error:
            log.warning("queue_not_read", cause=str(error))
            return None

    def _process(self, order: Order, *, follows: bool = True) -> None:
        runner = OrderRunner(self._shared, order, save=self._save, follows=follows)
        with self._lock:
            self._busy.append(runner)
        try:
            self._settle(self._outcome(runner), runner)
        finally:
            with self._lock:
                self._busy.remove(runner)

    def _outcome(self, runner: OrderRunner) -> Order:
        try:
            return runner.perform()
        except RunnerStopped:
            return replace(runner.order, state="queued")
        except GanglineError as error:
            log.warning("order_failed", order=runner.order.id, cause=str(error))
            return after_failure(runner.order, clean(str(error), limit=400), now=self._context.clock())
        except Exception as error:
            log.exception("order_broke", order=runner.order.id)
            reason = f"a bug in gangline: {type(error).__name__}; the service's log says more"
            return after_failure(runner.order, reason, now=self._context.clock())

    def _save(self, order: Order) -> bool:
        return self._context.database.orders.settle(order, holder=self._holder)

    def _settle(self, order: Order, runner: OrderRunner) -> None:
        """Write the result, retrying while the database is unavailable; the next service does it if this one stops."""
        while not runner.lost.is_set():
            try:
                self._save(order)
                self._unpark_if_approved(order)
            except GanglineError as error:
                log.warning("order_not_settled", order=order.id, cause=str(error))
                if self._stopping.wait(RETRY_SECONDS):
                    return
            else:
                log.info("order_settled", order=order.id, state=order.state, run=order.run, note=order.note)
                return

    def _unpark_if_approved(self, order: Order) -> None:
        """Start the order again if it was approved between the end of its driver and its parking."""
        if order.state == "parked" and order.trust == "fork" and order.run is not None:
            try:
                record = find_run(self._context.store, order.run)
            except (UsageError, IntegrityError):  # gone, or damaged: the order says so when its hour comes
                return
            if not awaits_approval(record):
                self._context.database.orders.unpark(order.run, now=self._context.clock())

    def _renew(self) -> None:
        while not self._stopping.wait(RENEW_SECONDS):
            with self._lock:
                busy = list(self._busy)
            for runner in busy:
                self._renew_one(runner)

    def _renew_one(self, runner: OrderRunner) -> None:
        number = runner.order.id
        try:
            renewed = self._context.database.orders.renew(
                number, holder=self._holder, now=self._context.clock(), lease_seconds=LEASE_SECONDS
            )
        except GanglineError as error:
            log.warning("order_not_renewed", order=number, cause=str(error))
            return
        with self._lock:
            is_ours = runner in self._busy
        if not renewed and is_ours:
            runner.lost.set()


BUSY_SECONDS = 10.0
"""A worker waits so long for a clone that another one fetches; then it takes another order."""


class OrderService:
    """Workers and sweep over one home."""

    def __init__(
        self, context: ServiceContext, *, program: Sequence[str] = PROGRAM,
        search_program: Sequence[str] = SEARCH_PROGRAM,
    ) -> None:  # fmt: skip
        """`program` is what drives a run and takes the arguments of `gangline run`, `search_program` those of
        `gangline search`."""
        most_bytes = int(context.site.serve.clone_bytes)
        clones = Clones(clones_home(context.home), most_bytes=most_bytes, wait_seconds=BUSY_SECONDS)
        schedules = Schedules(context.home / "schedules.json")
        self.workers = Workers(
            RunnerContext(
                context=context, clones=clones, schedules=schedules, stopping=threading.Event(), program=program,
                search_program=search_program,
            )
        )  # fmt: skip
        self.sweeper = Sweeper(context, clones, schedules)

    def start(self) -> None:
        self.workers.start()
        self.sweeper.start()

    def close(self) -> None:
        """Start no more orders; started drivers keep running, and the next service finds them."""
        self.sweeper.close()
        self.workers.close()


def clones_home(home: Path) -> Path:
    """Folder of the clones of forges' repositories."""
    return home / "clones"


def run_folder(home: Path, project: str, commit: str) -> Path | None:
    """Where a service with this home drives the commit of a project: the folder whose `.gangline` has its gangs."""
    paths = clones_home(home).glob(f"{project}-*/commits/{commit}")
    return next((path for path in paths if path.parents[1].name.rpartition("-")[0] == project), None)
