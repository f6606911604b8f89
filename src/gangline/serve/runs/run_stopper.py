"""Stops runs in the background: the cancel mark is written at once, daemon threads do the rest.

The mark remains if the service crashes: the run's driver obeys it, and the indexer finds runs without a driver.
"""

import threading
from pathlib import Path

import structlog

from gangline.errors import GanglineError
from gangline.line.record import states
from gangline.line.record.store import RecordStore
from gangline.line.run.cancel import cancel_run
from gangline.serve.context.service_context import ServiceContext
from gangline.spec.record import Record

THREADS = 4
log = structlog.get_logger()


class RunStopper:
    """Ends cancelled runs."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._turns = threading.BoundedSemaphore(THREADS)
        self._busy: set[str] = set()
        self._lock = threading.Lock()

    def stop(self, record: Record, *, reason: str) -> Record:
        """Mark a run; its gangs are stopped and its end is written after this returns.

        Raises:
            StorageError: The mark could not be written: nothing was begun.
        """
        marked = RecordStore.of(self._context.store, record).change(lambda each: states.request_cancel(each, reason))
        if marked.run.state == "open":
            self.finish(marked)
        return marked

    def finish(self, record: Record) -> None:
        """Cancel a marked run in a thread, unless one does already."""
        with self._lock:
            if record.run.id in self._busy:
                return
            self._busy.add(record.run.id)
        threading.Thread(target=self._finish, args=(record,), name=f"stop {record.run.id}", daemon=True).start()

    def _finish(self, record: Record) -> None:
        run = record.run.id
        try:
            with self._turns:
                ended = self._end(record)
            self._context.run_changed(record.run.project, record.commit.sha, run)
            log.info("run_stopped", run=run, verdict=ended.run.verdict)
        except GanglineError as error:
            log.warning("run_not_stopped", run=run, cause=str(error))
        finally:
            with self._lock:
                self._busy.discard(run)

    def _end(self, record: Record) -> Record:
        reason = record.run.cancel_requested or "cancelled"
        folder = gangs_folder(self._context, record)
        site, environ = self._context.site, self._context.environ
        if "kfp" in record.links:
            from gangline.kfp.server_runner import cancel_kfp_run

            return cancel_kfp_run(folder, record.run.id, site=site, environ=environ, reason=reason)
        return cancel_run(folder, record.run.id, site=site, environ=environ, reason=reason)


def gangs_folder(context: ServiceContext, record: Record) -> Path:
    """The folder whose `.gangline` holds the gangs of a run on this machine."""
    driven = context.run_folder(record.run.project, record.commit.sha)
    own = context.site.serve.repositories.get(record.run.project)
    return driven or (Path(own).expanduser() if own else context.repo)
