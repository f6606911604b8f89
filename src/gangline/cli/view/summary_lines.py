"""Summary lines shared by the views of a run: one per ended stage, then the verdict and the next steps."""

from gangline.errors import CancelledError, ConfigError, GateError, IntegrityError
from gangline.line.results.unreported_metrics import reported_no_steps
from gangline.report.facts import stages_in_order, total_seconds, verdict_head, verdict_reason, verdict_text
from gangline.report.text import clean
from gangline.sanitize import sanitized
from gangline.spec.identity import ROLES
from gangline.spec.record import STAGES, Record, StageInfo
from gangline.units import format_seconds

NAME_WIDTH = 10
WIDTH = 118


def found_line(record: Record) -> str:
    """Stages that a resumed run has done already; empty for a new one."""
    record = sanitized(record)
    done = [name for name, info in stages_in_order(record) if info.ended and info.state != "cancelled"]
    if not done:
        return ""
    said = "all stages are" if len(done) == len(STAGES) else f"{', '.join(done)} {'is' if len(done) == 1 else 'are'}"
    return f"{'found':<{NAME_WIDTH}}{record.run.id}: {said} done"


def stage_line(name: str, info: StageInfo, width: int, *, cut: bool = False) -> str:
    """`train     ddp-2 120/120 … 15 s`, the time at the right end of `width` columns; longer ones are cut or run on."""
    mark = {"failed": "✗ ", "cancelled": "■ ", "skipped": "– "}.get(info.state, "")
    text = f"{name:<{NAME_WIDTH}}{mark}{clean(info.message or info.state)}"
    spent = format_seconds(info.seconds) if info.seconds is not None and info.state != "skipped" else ""
    room = max(width - len(spent) - 1, 40)
    if cut and len(text) > room:
        text = text[: room - 1] + "…"
    return f"{text:<{room}} {spent}".rstrip()


def verdict_lines(record: Record) -> list[str]:
    """Verdict, time, reason; then the next command, on the same line where it fits."""
    record = sanitized(record)
    reason = clean(verdict_reason(record))
    said = [format_seconds(total_seconds(record)), *_proven(record)]
    said += [reason] if reason and verdict_text(record) != "passed" else []
    first = f"{verdict_head(record, NAME_WIDTH)}{' · '.join(said)}"
    after = f"next: {' · '.join(next_steps(record))}"
    return [f"{first} · {after}"] if len(first) + len(after) < WIDTH else [first, f"{'':<{NAME_WIDTH}}{after}"]


def _proven(record: Record) -> list[str]:
    if record.plan is None or record.proof is None or record.proof.same_loss != "yes":
        return []
    return [f"{record.plan.name} and {record.proof.plan}: same loss within the band"]


def _unreported_gates(record: Record) -> bool:
    """Whether a gate refused because a metric was not reported, which no comparison explains."""
    named = [gate.name.removeprefix("quality:") for gate in record.gates if gate.verdict == "no" and ":" in gate.name]
    return any(name not in record.metrics for name in named)


def next_steps(record: Record) -> list[str]:
    """Next commands for the user, by the class of the run's error."""
    run = record.run.id
    if record.run.state == "open":
        return [f"gangline follow {run}", "gangline run resumes it"]
    if record.run.verdict == "passed":
        drills = [] if reported_no_steps(record) else ["gangline drill kill-rank"]
        return ["gangline report --open", *drills]
    report = f"gangline report {run} --open"
    if _unreported_gates(record):
        return ["report that metric, or name another in gate.quality", "gangline run for a new commit"]
    by_code = {
        ConfigError.exit_code: ["put it right", "gangline run for a new commit", "gangline run --again for this one"],
        GateError.exit_code: [f"gangline diff {record.commit.base.run} {run}", report]
        if record.commit.base
        else [report],
        CancelledError.exit_code: ["gangline run --again"],
        IntegrityError.exit_code: [f"gangline verify {run}", report],
    }
    of_ranks = any(record.stages[name].state == "failed" for name in ROLES if name in record.stages)
    logs = [f"gangline logs {run} --failed"] if of_ranks else []
    return by_code.get(record.run.exit_code or 0, [*logs, report, "gangline run --again"])
