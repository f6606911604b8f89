"""Whether anybody still wants an order: looked up at every moment of it, and what is let go of once nobody does."""

import threading
import time

from gangline.errors import StorageError
from gangline.serve.desk import ServiceDesk
from gangline.serve.orders.children import Child
from gangline.serve.orders.stops import stop_run

LOOK_SECONDS = 1.0
"""Between two looks at the database."""


class Withdrawal:
    """Of one order that a worker has in hand."""

    def __init__(self, desk: ServiceDesk, order: int, stopping: threading.Event) -> None:
        self._desk, self._order, self._stopping = desk, order, stopping
        self.lost = threading.Event()
        """Set where another service has the order by now, or somebody withdrew it."""
        self._looked = time.monotonic()

    def is_over(self) -> bool:
        """Is the worker to leave the order now? Cheap."""
        if not self.lost.is_set() and time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            if self._reason() is not None:
                self.lost.set()
        return self.lost.is_set() or self._stopping.is_set()

    def wait(self, seconds: float) -> bool:
        """As `is_over`, after a pause that the end of the service cuts short."""
        return self._stopping.wait(seconds) or self.is_over()

    def let_go(self, child: Child) -> None:
        """A driver goes on without us; that of an order which somebody withdrew is ended, and its run with it."""
        reason = self._reason()
        if reason is None:
            child.leave()
            return
        child.end()
        run = child.run()
        if run is not None:
            stop_run(self._desk, run, reason=reason)

    def _reason(self) -> str | None:
        """Why the order was withdrawn; None where it was not, as far as can be told now."""
        try:
            found = self._desk.database.orders.get(self._order)
        except StorageError:
            return None
        if found is None:
            return "its order is gone"
        return (found.note or "withdrawn") if found.state == "dropped" else None
