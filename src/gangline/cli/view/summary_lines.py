"""Summary lines shared by the views of a run: one per ended stage, then the verdict and the next steps."""

from gangline.report.diagnoses import diagnosis_text
from gangline.report.facts import headline, stages_in_order, total_seconds, verdict_reason, verdict_word
from gangline.report.next_commands import next_steps
from gangline.report.text import clean, quantity
from gangline.sanitize import sanitized
from gangline.spec.record import STAGES, Record, StageInfo
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
