"""What drills and restarts cost a run, for people. Pure."""

from gangline.report.facts import time_of
from gangline.spec.measurements import Drill
from gangline.spec.record import Record
from gangline.spec.run_flags import UNDER_WAY
from gangline.units import format_seconds


def lost_work(record: Record) -> str:
    """Sentence on work that restarts lost and the ledger does not have; empty: it has all, or nothing was lost."""
    gang, ledger = record.gang, record.ledger
    is_known = ledger is None or ledger.seconds.get("compute") or any(drill.lost_seconds for drill in record.drills)
    if gang is None or not gang.restarts or is_known:
        return ""
    restarts = f"{gang.restarts} restart{'' if gang.restarts == 1 else 's'}"
    return f"work lost by {restarts}: not known, it is part of other, as the program does not account for its steps"


def drill_result(drill: Drill) -> str:
    """`held late`; `no result yet` of a drill that has only marked its run."""
    is_open = drill.result == "not_struck" and drill.reason == UNDER_WAY
    return "no result yet" if is_open else f"{drill.result.replace('_', ' ')} {drill.reason}".rstrip()


def drill_rows(record: Record) -> list[tuple[str, str]]:
    """(name, `held · lost 4 steps, 3 min 29 s of rank time`) of each drill."""
    rows = []
    for drill in record.drills:
        lost = [] if drill.lost_steps is None else [f"{drill.lost_steps} step{'' if drill.lost_steps == 1 else 's'}"]
        if drill.lost_seconds is not None and record.plan is not None and record.ledger is not None:
            held = format_seconds(drill.lost_seconds * record.plan.world_size)
            lost.append(f"{held} of {time_of(record.ledger.resource)}")
        rows.append((drill.name, drill_result(drill) + (f" · lost {', '.join(lost)}" if lost else "")))
    return rows
