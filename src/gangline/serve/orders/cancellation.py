"""Cancellation of orders and their runs: withdrawn orders, deleted branches, closed pull requests."""

import threading
import time

import structlog

from gangline.errors import GanglineError, StorageError
from gangline.line.record import states
from gangline.line.record.runs import find_run
from gangline.line.record.store import RecordStore
from gangline.line.run.driver_process import DriverProcess
from gangline.serve.context.service_context import ServiceContext

log = structlog.get_logger()


def stop_runs(context: ServiceContext, project: str, ref: str, *, reason: str, except_order: int = 0) -> list[str]:
    """Mark the open runs that orders of `ref` began, and drop orders that have none yet; names of the runs.

    A run's driver obeys the mark; a run without driver is ended by the next look at open runs.

    Args:
        context: Whose orders.
        project: Of the ref.
        ref: That is gone.
        reason: One sentence for the records.
        except_order: An order that is left alone: its caller settles it.
    """
    begun = context.database.orders.list(states=["driving", "parked"], projects=[project], limit=1000)
    runs = [order.run for order in begun if order.ref == ref and order.run is not None and order.id != except_order]
    for run in runs:
        stop_run(context, run, reason=reason)
    context.database.orders.drop(project=project, ref=ref, note=reason, except_order=except_order)
    return runs


def stop_run(context: ServiceContext, run: str, *, reason: str) -> None:
    """Mark one, where it is open."""
    try:
        record = find_run(context.store, run)
        if record.run.state == "open":
            RecordStore.of(context.store, record).change(lambda each: states.request_cancel(each, reason))
    except GanglineError as error:
        log.warning("run_not_stopped", run=run, cause=str(error))


CHECK_SECONDS = 1.0
"""Time between two looks at the database."""


class OrderWithdrawal:
    """Withdrawal of an order that a worker holds."""

    def __init__(self, context: ServiceContext, order: int, stopping: threading.Event) -> None:
        self._context, self._order, self._stopping = context, order, stopping
        self.lost = threading.Event()
        """Set if another service holds the order now, or it was withdrawn."""
        self._looked = time.monotonic()

    def is_over(self) -> bool:
        """Whether the worker has to leave the order now; cheap."""
        if not self.lost.is_set() and time.monotonic() - self._looked > CHECK_SECONDS:
            self._looked = time.monotonic()
            if self._reason() is not None:
                self.lost.set()
        return self.lost.is_set() or self._stopping.is_set()

    def wait(self, seconds: float) -> bool:
        """Pause, then return `is_over`; the end of the service cuts the pause short."""
        return self._stopping.wait(seconds) or self.is_over()

    def release_driver(self, child: DriverProcess) -> None:
        """Leave the driver running; if the order was withdrawn, stop the driver and its run."""
        reason = self._reason()
        if reason is None:
            child.detach()
            return
        child.end()
        run = child.run()
        if run is not None:
            stop_run(self._context, run, reason=reason)

    def _reason(self) -> str | None:
        """Why the order was withdrawn; None where it was not, as far as is known now."""
        try:
            order = self._context.database.orders.get(self._order)
        except StorageError:
            return None
        if order is None:
            return "its order is gone"
        return (order.note or "withdrawn") if order.state == "dropped" else None
