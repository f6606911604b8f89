"""An evaluate gang: several seeds for a band, or a checkpoint on held-out data."""

from gangline.errors import SIGTERM_CODE
from gangline.spec.gang import GangResult
from gangline.train.context import Context
from gangline.train.results import write_result
from gangline.train.roles.jobs import run_job
from gangline.train.roles.splits import fetch, open_split
from gangline.train.task import Task


def run(context: Context, task: Task) -> int:
    """Exit code of this rank; collective."""
    fetch(context)
    results = []
    for number, job in enumerate(context.plan.jobs):
        holdout = open_split(context, task, "holdout", seed=job.seed)
        result = run_job(context, task, job, number, holdout)
        if result is None:
            return SIGTERM_CODE
        results.append(result)
    final = max((result.step for result in results), default=0)
    units = dict(getattr(task, "metric_units", {}))
    gang = GangResult(role="evaluate", final_step=final, jobs=tuple(results), metric_units=units)
    write_result(context.metrics, gang)
    return 0
