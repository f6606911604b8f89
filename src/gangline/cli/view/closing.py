"""Lines that every view says alike: one per ended stage, and the verdict with what to do next."""

from gangline.errors import CancelledError, GateError, StillRunning
from gangline.report.facts import stages_in_order, total_seconds, verdict_reason, verdict_word
from gangline.report.text import clean
from gangline.spec.record import STAGES, Record, StageInfo
from gangline.units import format_seconds

NAME_WIDTH = 10


def found_line(record: Record) -> str:
    """What stands already of a run that is taken up again; empty for a new one."""
    done = [name for name, info in stages_in_order(record) if info.state not in ("waiting", "running")]
    if not done:
        return ""
    said = (
        "all stages stand" if len(done) == len(STAGES) else f"{', '.join(done)} stand" + ("s" if len(done) == 1 else "")
    )
    return f"{'found':<{NAME_WIDTH}}{record.run.id}: {said}"


def stage_line(name: str, info: StageInfo, width: int) -> str:
    """`train     ddp-2 120/120 … 15 s`, the time at the right end of `width` columns."""
    taken = f" (taken from {info.taken_from})" if info.state == "taken" and info.taken_from else ""
    mark = {"failed": "✗ ", "cancelled": "■ ", "skipped": "– "}.get(info.state, "")
    text = f"{name:<{NAME_WIDTH}}{mark}{clean(info.message or info.state)}{taken}"
    spent = format_seconds(info.seconds) if info.seconds is not None and info.state != "skipped" else ""
    room = max(width - len(spent) - 1, 40)
    text = text if len(text) <= room else text[: room - 1] + "…"
    return f"{text:<{room}} {spent}".rstrip()


def closing_lines(record: Record) -> list[str]:
    """Verdict, time, reason; then the next command."""
    word = verdict_word(record)
    reason = clean(verdict_reason(record))
    said = [format_seconds(total_seconds(record))] + ([reason] if reason and word != "passed" else [])
    return [f"{word.upper():<{NAME_WIDTH}}{' · '.join(said)} · next: {' · '.join(next_commands(record))}"]


def next_commands(record: Record) -> list[str]:
    """What a person does after this ending."""
    run, code = record.run.id, record.run.exit_code
    if record.run.verdict == "passed":
        return ["gangline report --open", "gangline drill kill-rank"]
    if code == GateError.exit_code and record.commit.base:
        return [f"gangline diff {record.commit.base.run} {run}", f"gangline report {run} --open"]
    if code == CancelledError.exit_code:
        return ["gangline run --again"]
    if record.run.state == "open" or code == StillRunning.exit_code:
        return [f"gangline follow {run}", f"gangline cancel {run}"]
    return [f"gangline logs {run} --failed", f"gangline show {run}"]
