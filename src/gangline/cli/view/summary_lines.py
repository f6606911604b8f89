"""Summary lines shared by the views of a run: one per ended stage, then the verdict and the next steps."""

from gangline.errors import CancelledError, ConfigError, GateError, IntegrityError
from gangline.line.results.unreported_metrics import reported_no_steps
from gangline.report.diagnoses import diagnosis_text
from gangline.report.facts import headline, stages_in_order, total_seconds, verdict_reason, verdict_word
from gangline.report.text import clean, quantity
from gangline.sanitize import sanitized
from gangline.spec.identity import ROLES
from gangline.spec.record import STAGES, Record, StageInfo
from gangline.spec.run_flags import stage
from gangline.units import format_seconds

NAME_WIDTH = 10


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
    """Verdict, time, and the metric of a run that passed or the reason of another; gates that could not judge; next.

    That samples came too slowly is named here, too, for a key of the line mends it.
    """
    record = sanitized(record)
    passed = record.run.verdict == "passed"
    result = _metric(record) if passed else clean(verdict_reason(record))
    first = [verdict_word(record).upper(), format_seconds(total_seconds(record)), *([result] if result else [])]
    unjudged = [gate for gate in record.gates if passed and gate.verdict == "unknown"]
    rest = [f"not judged: {clean(gate.name, 40)}, {clean(gate.reason)}" for gate in unjudged]
    rest += [diagnosis_text(each) for each in record.diagnoses if each.kind == "bound" and "data" in each.names]
    rest.append(f"next: {' · '.join(next_steps(record))}")
    return [" · ".join(first), *(f"{'':<{NAME_WIDTH}}{each}" for each in rest)]


def _metric(record: Record) -> str:
    """`eval_loss 3.037 nats`; empty without any metric."""
    judged = headline(record)
    return f"{clean(judged.name, 60)} {quantity(judged.metric.value, judged.metric.unit)}" if judged else ""


def _unreported_gates(record: Record) -> bool:
    """Whether a gate refused because a metric was not reported, which no comparison explains."""
    named = [gate.name.removeprefix("quality:") for gate in record.gates if gate.verdict == "no" and ":" in gate.name]
    return any(name not in record.metrics for name in named)


def _serving(record: Record) -> list[str]:
    """The command that lets the published model answer, for a task or a handler."""
    model, values = stage(record, "publish").outputs.get("model"), record.inputs.values
    answers = model is not None and (values.get("project.task") or values.get("infer.handler"))
    return [f"gangline infer {model}"] if answers else []


def next_steps(record: Record) -> list[str]:
    """Next commands for the user, by the class of the run's error."""
    run = record.run.id
    if record.run.state == "open":
        return [f"gangline follow {run}", "gangline run resumes it"]
    if record.run.verdict == "passed":
        drills = [] if reported_no_steps(record) else ["gangline drill kill-rank"]
        return ["gangline report --open", *_serving(record), *drills]
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
