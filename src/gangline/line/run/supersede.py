"""A newer commit of a branch stops the branch's open runs; on branches that publish, every commit runs to its end."""

import time

from gangline.errors import GanglineError
from gangline.line.record import states
from gangline.line.record.context import RunContext
from gangline.line.record.runs import open_runs
from gangline.line.record.store import RecordStore
from gangline.line.run import lease
from gangline.line.run.cancel import end_cancelled_run
from gangline.spec.globs import any_matches
from gangline.spec.record import Record
from gangline.spec.run_flags import stopped_early


def supersede(ctx: RunContext) -> None:
    """Ask older open runs of this branch to stop; those that nobody drives are ended here and now.

    Trouble with one of them is told and hinders nothing: the sweep finds it again.
    """
    branch = ctx.record.commit.branch
    if branch is None or ctx.line.trigger.supersede != "cancel" or any_matches(branch, ctx.line.publish.branches):
        return
    if stopped_early(ctx.record):  # it measures a commit, it stands for no branch
        return
    for older in list(open_runs(ctx.store, ctx.record.run.project)):
        if _is_older(ctx.record, older) and not _is_newer_commit(ctx, older):
            try:
                _stop(ctx, older)
            except GanglineError as error:
                ctx.record_event("resolve", "supersede", f"{older.run.id} could not be stopped: {error}")


def _is_older(mine: Record, other: Record) -> bool:
    same_branch = other.commit.branch == mine.commit.branch
    return (
        same_branch
        and not stopped_early(other)
        and other.commit.sha != mine.commit.sha
        and other.run.created <= mine.run.created
    )


def _is_newer_commit(ctx: RunContext, other: Record) -> bool:
    """Two pushes may be resolved in the other order: the later commit is not stopped by the earlier one."""
    return ctx.repository.has(other.commit.sha) and ctx.repository.is_ancestor(ctx.record.commit.sha, other.commit.sha)


def _stop(ctx: RunContext, older: Record) -> None:
    records = RecordStore.of(ctx.store, older, ctx.sealer)
    reason = f"{states.SUPERSEDED}{ctx.record.run.id}"
    marked = records.change(lambda record: states.request_cancel(record, reason))
    ctx.record_event("resolve", "supersede", f"{older.run.id} is superseded: a newer commit of {older.commit.branch}")
    if not lease.is_held(lease.read_lease(ctx.store, records.prefix), now=time.time()):
        end_cancelled_run(records, marked, ctx.launcher, save=False)
