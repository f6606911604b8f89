"""A branch that is gone, a pull request that was closed: its open runs are asked to stop, its orders fall away."""

import structlog

from gangline.errors import GanglineError
from gangline.line import states
from gangline.line.record_store import RecordStore
from gangline.line.runs import find_run
from gangline.serve.desk import ServiceDesk

log = structlog.get_logger()


def stop_runs(desk: ServiceDesk, project: str, ref: str, *, reason: str, but: int = 0) -> list[str]:
    """Mark the open runs that orders of `ref` began, and drop orders that have none yet; names of the runs.

    The mark is obeyed by a run's driver; where nobody drives, the next look at open runs ends it.

    Args:
        desk: Whose orders.
        project: Of the ref.
        ref: That is gone.
        reason: One sentence for the records.
        but: An order that is left alone: whoever settles it does so itself.
    """
    begun = desk.database.orders.list(states=["driving", "parked"], projects=[project], limit=1000)
    runs = [each.run for each in begun if each.ref == ref and each.run is not None and each.id != but]
    for run in runs:
        stop_run(desk, run, reason=reason)
    desk.database.orders.drop(project=project, ref=ref, note=reason, but=but)
    return runs


def stop_run(desk: ServiceDesk, run: str, *, reason: str) -> None:
    """Mark one, where it is open."""
    try:
        record = find_run(desk.store, run)
        if record.run.state == "open":
            RecordStore.of(desk.store, record).change(lambda each: states.request_cancel(each, reason))
    except GanglineError as error:
        log.warning("run_not_stopped", run=run, cause=str(error))
