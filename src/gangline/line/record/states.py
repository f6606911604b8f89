"""State machine of a run and its stages, as pure changes of a record; `check` refuses every other change.

    stage   waiting ─► running ─► done | taken | skipped | failed | cancelled      (running again: the next try)
    run     open ─► ended: passed, refused, failed, cancelled or superseded        (never leaves it)

`commit` never changes, `inputs` and `plan` are set once; of an ended run only the report stage, artifacts, links,
drills and events may still change.
"""

from dataclasses import replace
from typing import Any

from gangline.errors import CancelledError, IntegrityError, UsageError, error_for
from gangline.spec.forecast import Forecast
from gangline.spec.record import STAGES, Event, Inputs, Record, StageInfo, StageState, Verdict
from gangline.spec.run_flags import FINAL, stage

MAX_EVENTS = 200
MAX_TEXT = 500
SUPERSEDED = "superseded by "


def start_stage(record: Record, name: str, *, now: str) -> Record:
    """Stage `name` starts, for the first time or again after its driver died."""
    info = stage(record, name)
    if info.state in FINAL:
        raise UsageError(
            f"stage {name} of {record.run.id} is {info.state} already; gangline run --again makes another attempt"
        )
    if record.run.state == "ended" and name != "report":
        raise UsageError(
            f"run {record.run.id} has ended ({record.run.verdict}); gangline run --again makes another attempt"
        )
    if record.run.cancel_requested and name != "report":
        raise CancelledError(f"run {record.run.id} is being cancelled: {record.run.cancel_requested}")
    running = replace(
        info,
        state="running",
        started=info.started or now,
        counted_until=uncounted_since(record, name) or now,
        tries=info.tries + 1,
    )
    return _with_stage(record, name, running)


def record_stage_seconds(record: Record, name: str, *, now: str, seconds: float) -> Record:
    """Stage `name` took `seconds` so far; its driver leaves it running for a later one."""
    info = stage(record, name)
    if info.state != "running":
        return record
    return _with_stage(record, name, replace(info, seconds=round(seconds, 3), counted_until=now))


def uncounted_since(record: Record, name: str) -> str | None:
    """Start of the time of stage `name` that is not recorded yet: its gang may run since the stage before."""
    before = STAGES.index(name) - 1
    return stage(record, name).counted_until or (stage(record, STAGES[before]).ended if before >= 0 else None)


def stage_origin(record: Record, name: str) -> str:
    """Id of the run that executed stage `name`, however often it was reused since."""
    return stage(record, name).taken_from or record.run.id


def end_stage(
    record: Record, name: str, state: StageState, *, now: str, seconds: float, message: str, **fields: Any
) -> Record:
    """Stage `name` has ended; `fields` are those of StageInfo (key, exit, taken_from, outputs)."""
    info = stage(record, name)
    if info.state != "running" or state not in FINAL:
        raise UsageError(f"stage {name} of {record.run.id} is {info.state}: it cannot become {state}")
    ended = replace(
        info,
        state=state,
        ended=now,
        seconds=round(seconds, 3),
        counted_until=None,
        message=message[:MAX_TEXT],
        **fields,
    )
    return _with_stage(record, name, ended)


def end_run(record: Record, verdict: Verdict, *, now: str, reason: str, exit_code: int) -> Record:
    """The run has its verdict; stages that did not run are closed. Ending a run again changes nothing."""
    if record.run.state == "ended":
        return record
    unfinished: StageState = "cancelled" if verdict in {"cancelled", "superseded"} else "skipped"
    stages = {name: _close(stage(record, name), name, unfinished, now) for name in STAGES}
    run = replace(record.run, state="ended", verdict=verdict, reason=reason[:MAX_TEXT], exit_code=exit_code)
    return replace(record, stages=stages, run=run)


def raise_for_verdict(record: Record) -> Record:
    """Return the record of a run that passed or is open; raise the error that another one ended with."""
    if record.run.exit_code:
        raise error_for(record.run.exit_code)(record.run.reason or f"{record.run.id} {record.run.verdict}")
    return record


def _close(info: StageInfo, name: str, state: StageState, now: str) -> StageInfo:
    if name == "report" or info.state in FINAL:
        return info
    message = info.message or ("stopped" if info.state == "running" else "not reached")
    return replace(info, state=state, ended=now if info.started else None, counted_until=None, message=message)


def request_cancel(record: Record, reason: str) -> Record:
    """Ask driver and gang to stop; the first reason stays, and an ended run is not changed."""
    if record.run.state == "ended" or record.run.cancel_requested:
        return record
    return replace(record, run=replace(record.run, cancel_requested=reason[:MAX_TEXT]))


def cancel_verdict(record: Record) -> Verdict:
    """Verdict of a cancelled run: superseded if a newer commit requested it."""
    return "superseded" if (record.run.cancel_requested or "").startswith(SUPERSEDED) else "cancelled"


def add_event(record: Record, *, now: str, stage: str, kind: str, text: str) -> Record:
    """The record with one more event; it keeps the last 200."""
    event = Event(time=now, stage=stage, kind=kind, text=text[:MAX_TEXT])
    return replace(record, events=(*record.events, event)[-MAX_EVENTS:])


def check(before: Record, after: Record) -> None:
    """Refuse a change that no run may make.

    Raises:
        IntegrityError: A constant field would change, or a stage or the run would leave its final state.
    """
    run = before.run.id
    _require(before.run.id == after.run.id and before.commit == after.commit, f"{run}: the commit never changes")
    _require(_only_filled(before.inputs, after.inputs), f"{run}: inputs are set once")
    _require(before.plan is None or _same_plan(before, after), f"{run}: a plan is made once")
    for name in STAGES:
        old, new = stage(before, name), stage(after, name)
        _require(_forward(old, new), f"{run}: stage {name} would go from {old.state} to {new.state}")
    if before.run.state == "ended":
        same = replace(after.run, driver=before.run.driver) == before.run
        _require(same, f"{run} has ended as {before.run.verdict}: that never changes")
        others = all(stage(before, name) == stage(after, name) for name in STAGES if name != "report")
        _require(others and before.gates == after.gates, f"{run} has ended: only its report may still run")


def _forward(old: StageInfo, new: StageInfo) -> bool:
    if old.state in FINAL:
        return old == new
    return not (old.state == "running" and new.state == "waiting")


def _only_filled(old: Inputs, new: Inputs) -> bool:
    pairs = ((getattr(old, name), getattr(new, name)) for name in old.__dataclass_fields__)
    return all(not a or a == b for a, b in pairs)


def _same_plan(before: Record, after: Record) -> bool:
    if before.plan is None or after.plan is None:
        return before.plan is after.plan
    unmeasured = Forecast()
    return replace(before.plan, measured=unmeasured) == replace(after.plan, measured=unmeasured)


def _with_stage(record: Record, name: str, info: StageInfo) -> Record:
    return replace(record, stages={**record.stages, name: info})


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise IntegrityError(message)
