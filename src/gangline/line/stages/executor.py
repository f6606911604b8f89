"""Execution of stages in order: marks each as running, calls it, retries store errors, writes its result.

A run ends with a failed stage, a refusing gate, a cancellation, or when all stages are done. If the store is
unavailable, there is no capacity, this machine lacks a program, on Ctrl-C or for a gang that cannot be reached the
error is raised and the run stays open; the same request resumes it.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

import stamina

from gangline.errors import (
    CancelledError,
    CapacityError,
    GanglineError,
    GateError,
    NotInstalledError,
    StillRunning,
    StorageError,
    UsageError,
)
from gangline.launch.protocol import GangGone
from gangline.line.gangs import launchers
from gangline.line.gangs.follow import GangUnreachable, Interrupted
from gangline.line.record import runs, states
from gangline.line.record.context import RunContext, StageResult, StageTime, unchanged
from gangline.line.request.trust import checkpoint_owner
from gangline.line.stages import STAGE_FUNCTIONS
from gangline.report.facts import passed_reason
from gangline.spec.record import RETRY, STAGES, Record, Verdict
from gangline.spec.run_flags import FINAL, GOOD, stage
from gangline.storage.objects.multipart import abort_left_uploads
from gangline.storage.s3.run_credentials import revoke_credentials
from gangline.units import now


def select_stages(start: str | None, until: str | None) -> Sequence[str]:
    """Stages from `start` to `until`, in order; raises UsageError for unknown ones or another order."""
    for name in (start, until):
        if name is not None and name not in STAGES:
            raise UsageError(f"wanted a stage, found {name!r}; stages are {', '.join(STAGES)}")
    first = STAGES.index(start) if start else 0
    last = STAGES.index(until) if until else len(STAGES) - 1
    if last < first:
        raise UsageError(f"wanted stages in order, found --from {start} --until {until}; {start} comes after {until}")
    return STAGES[first : last + 1]


def require_earlier_stages(record: Record, start: str | None) -> None:
    """Raises UsageError if a stage before `start` is not done."""
    for name in STAGES[: STAGES.index(start)] if start else ():
        state = stage(record, name).state
        if state not in GOOD:
            raise UsageError(f"{record.run.id}: {start} needs {name}, which is {state}; gangline run does both")


LEAVE_OPEN = (StorageError, CapacityError, StillRunning, NotInstalledError, Interrupted, GangUnreachable)
STORE_TRIES = 3
STORE_SECONDS = 30.0


def execute_stages(ctx: RunContext, names: Sequence[str]) -> Record:
    """Run the stages `names` in order; a failure ends the run and skips the rest.

    Raises:
        GanglineError: One of LEAVE_OPEN; the run stays open.
    """
    for name in names:
        if name == "report" or ctx.record.run.state == "ended":
            continue
        if stage(ctx.record, name).state not in FINAL:
            execute_stage(ctx, name)
    if "report" in names:
        finish_run(ctx)
    return ctx.record


def finish_run(ctx: RunContext) -> None:
    """Give a run its verdict once every stage before the report is done, then draw the report.

    Raises:
        UsageError: The run has stages that are not done.
    """
    if ctx.record.run.state == "open":
        left = next((name for name in STAGES[:-1] if stage(ctx.record, name).state not in GOOD), None)
        if left is not None:
            run, state = ctx.record.run.id, stage(ctx.record, left).state
            raise UsageError(f"{run} has not ended, {left} is {state}; gangline report {run} draws its current state")
        _end(ctx, lambda _: "passed", reason=passed_reason(ctx.record.gates), exit_code=0)
    if stage(ctx.record, "report").state not in FINAL:
        execute_stage(ctx, "report")


def execute_stage(ctx: RunContext, name: str) -> None:
    """Run one stage and write its result, and the end of the run if the stage ends it.

    Raises:
        GangGone: The repository and the store in it were deleted, so the run cannot be resumed.
        GanglineError: One of LEAVE_OPEN; the run stays open.
    """
    try:
        _perform(ctx, name)
    except StorageError:
        ctx.launcher.require_folders()
        raise


def _perform(ctx: RunContext, name: str) -> None:
    ctx.observer.stage_started(name)
    ctx.stage_time = StageTime.of(ctx.record, name)
    try:
        ctx.change(lambda record: states.start_stage(record, name, now=now()))
        result = _with_retries(ctx, name)
    except LEAVE_OPEN:
        _record_time(ctx, name, ctx.stage_time.seconds)
        raise
    except GanglineError as error:
        result = StageResult(state="failed", message=first_line(error), error=error)
    try:
        _write_end(ctx, name, result, ctx.stage_time.seconds)
    except StorageError as error:
        if isinstance(result.error, GangGone):  # the store in the deleted folder, too
            raise result.error from error
        raise


def _record_time(ctx: RunContext, name: str, seconds: float) -> None:
    """Record the seconds of the stage so far; if that fails, the next driver counts from the last recorded time."""
    with suppress(GanglineError):
        ctx.change(lambda record: states.record_stage_seconds(record, name, now=now(), seconds=seconds))


def _with_retries(ctx: RunContext, name: str) -> StageResult:
    """Call the stage, and again if the store fails, which is safe because stages are idempotent."""
    for attempt in stamina.retry_context(on=StorageError, attempts=STORE_TRIES, timeout=STORE_SECONDS):
        with attempt:
            if attempt.num > 1:
                ctx.record_event(name, RETRY, f"{name}: the store failed, try {attempt.num} of {STORE_TRIES}")
            return STAGE_FUNCTIONS[name](ctx)
    raise AssertionError(f"{name}: retries end with a result or with an error")


def _write_end(ctx: RunContext, name: str, result: StageResult, seconds: float) -> None:
    error = result.error
    stopped = isinstance(error, CancelledError)
    state = "cancelled" if stopped else result.state

    def change(record: Record) -> Record:
        changed = result.change(record)
        if stage(changed, name).state != "running":
            return changed
        return states.end_stage(
            changed, name, state, now=now(), seconds=seconds, message=result.message, key=result.key,
            taken_from=result.taken_from, outputs=result.outputs, exit=error.exit_code if error else 0,
        )  # fmt: skip

    if error is None:
        ctx.change(change)
    else:
        _end(
            ctx,
            lambda record: _verdict(record, error),
            reason=first_line(error),
            exit_code=error.exit_code,
            before=change,
        )
    ctx.observer.stage_ended(name, stage(ctx.record, name))


def _verdict(record: Record, error: GanglineError) -> Verdict:
    if isinstance(error, CancelledError):
        return states.cancel_verdict(record)
    return "refused" if isinstance(error, GateError) else "failed"


def _end(
    ctx: RunContext,
    verdict: Callable[[Record], Verdict],
    *,
    reason: str,
    exit_code: int,
    before: Callable[[Record], Record] = unchanged,
) -> None:
    def change(record: Record) -> Record:
        ended = before(record)
        return states.end_run(ended, verdict(ended), now=now(), reason=reason, exit_code=exit_code)

    ctx.change(change)
    _clean_up(ctx)
    runs.unmark_open(ctx.store, ctx.record)


def _clean_up(ctx: RunContext) -> None:
    """Revoke credentials of an ended run and delete what crashed uploads and saves left."""
    try:
        revoke_credentials(ctx.store, ctx.records.prefix)
    except StorageError as error:  # the verdict is written, and they expire
        ctx.observer.note(
            f"credentials of {ctx.record.run.id} are valid until they expire or gangline sweep runs: {error}"
        )
    abort_left_uploads(ctx.store, f"{ctx.records.prefix}/", older_than_seconds=0)
    gang = ctx.record.gang
    if gang is not None and ctx.launcher.status(gang.name).state in {"ended", "absent"}:
        from gangline.checkpoint.format.retention import collect_left_files

        key = launchers.checkpoint_key(ctx.site, ctx.environ, checkpoint_owner(ctx.record))
        collect_left_files(ctx.store, f"{ctx.record.gang_prefix}/checkpoints", key)


def first_line(error: GanglineError) -> str:
    """First line of the error's message, at most MAX_TEXT characters."""
    return (str(error) or type(error).__name__).splitlines()[0][: states.MAX_TEXT]
