"""Record in a terminal: a page, or one line. Plain text without colour or width."""

from gangline.report import facts
from gangline.report.diagnoses import diagnosis_text
from gangline.report.text import clean, percent, quantity, share_words, short
from gangline.report.training_facts import drill_rows, lost_work, part_words, training_rows
from gangline.sanitize import sanitized
from gangline.spec.record import ENVIRONMENT, Record
from gangline.units import format_bytes, format_number, format_seconds, format_step, sparkline


def one_line(record: Record, *, doing: str = "") -> str:
    """`passed bytegpt-9f31c2a0-k7q2mx eval_loss 2.375 ddp-2 1 min 14 s`, for build descriptions.

    Args:
        record: Of the run.
        doing: What an open run does now; in place of the numbers that it has not yet.
    """
    record = sanitized(record)
    if record.run.state == "open":
        return " · ".join(["open", record.run.id, doing or _now_at(record)])
    judged = facts.headline(record)
    words = [facts.verdict_text(record), record.run.id]
    words += [_value_words(judged)] if judged else []
    words += [record.plan.name] if record.plan else []
    words += [format_seconds(facts.total_seconds(record))]
    reason = clean(facts.verdict_reason(record), 120)
    return " · ".join(words + ([reason] if reason and facts.verdict_word(record) != "passed" else []))


def _now_at(record: Record) -> str:
    """The stage that runs, or the next one; what it waits for, where that is known."""
    unfinished = [name for name, info in facts.stages_in_order(record) if info.state in ("waiting", "running")]
    if record.gang and record.gang.waiting and record.gang.released is None:
        return f"waits: {clean(record.gang.waiting.who, 160)}"
    return unfinished[0] if unfinished else "report"


def page(record: Record) -> str:
    """The most important facts, a line each."""
    record = sanitized(record)
    parts = [
        _head(record),
        _stages(record),
        _gates(record),
        _metrics(record),
        _plan(record),
        _time(record),
        [f"{name:<10}{said}" for name, said in training_rows(record)],
        _rest(record),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _head(record: Record) -> list[str]:
    commit = record.commit
    reason = clean(facts.verdict_reason(record))
    where = f" on {clean(commit.branch, 80)}" if commit.branch else ""
    dirty = " with uncommitted changes" if commit.patch else ""
    base = f"base      {commit.base.run}" if commit.base else "base      none"
    marked = facts.mark_words(record)
    silent = [f"unreported {clean(said)}" for said in facts.unreported(record)]
    return [
        f"{facts.verdict_head(record)}{record.run.id}" + (f" · {reason}" if reason else ""),
        *([f"marked    {clean(marked, 300)}"] if marked else []),
        f"commit    {short(commit.sha)}{where}{dirty}: {clean(commit.subject, 120)}",
        f"{base} · created {record.run.created} · attempt {record.run.attempt}",
        *silent,
    ]


def _stages(record: Record) -> list[str]:
    lines = []
    for name, info in facts.stages_in_order(record):
        spent = format_seconds(info.seconds) if info.seconds is not None else "-"
        said = clean(info.message or info.state, 160)
        lines.append(f"{facts.STAGE_MARKS[info.state]} {name:<10}{spent:>12}  {said}")
    return lines


def _gates(record: Record) -> list[str]:
    lines = [
        f"{facts.MARKS[gate.verdict]} {clean(gate.name, 40)}: {clean(gate.reason)}"
        for gate in facts.gate_order(record.gates)
    ]
    rows = [
        f"  {facts.MARKS[row.pinned]} {clean(row.name, 20):<12} {clean(row.by, 300)}"
        for row in facts.pinned_rows(record)
    ]
    return [*lines, *(["  pinned:", *rows] if rows else [])]


def _metrics(record: Record) -> list[str]:
    first, others = facts.shown_metrics(record)
    more = [f"  and {len(others)} more: gangline show {record.run.id} --json"] if others else []
    return [*map(_metric_line, first), *more, *_curve(record)]


def _metric_line(judged: facts.JudgedMetric) -> str:
    mark = facts.SIDE_MARKS[judged.side] if judged.side != "unknown" else " "
    return f"{mark} {_value_words(judged)}"


def _value_words(judged: facts.JudgedMetric) -> str:
    metric = judged.metric
    text = f"{clean(judged.name, 60)} {quantity(metric.value, metric.unit)}"
    if metric.base_band and judged.band is not None:
        return f"{text} against {format_number(metric.base_band.center)} ± {percent(judged.band)}"
    if metric.base is not None:
        return f"{text} against {quantity(metric.base, metric.unit)}"
    if metric.band and metric.band.center:
        return (
            f"{text}, band {format_number(metric.band.center)} ± {percent(metric.band.half / abs(metric.band.center))}"
        )
    return text


def _curve(record: Record) -> list[str]:
    values = [point.value for point in record.curve.points]
    return [f"  {clean(record.curve.metric, 40)} {sparkline(values, 32)} {facts.curve_end(record)}"] if values else []


def _plan(record: Record) -> list[str]:
    plan = record.plan
    if plan is None:
        return []
    mesh = f" ({words})" if (words := facts.mesh_words(plan.mesh, plan.shares)) else ""
    chosen = f"{plan.name}{mesh}, {plan.world_size} ranks, {plan.precision}: {clean(plan.reason)}"
    lines = [f"plan      {facts.program_decides(record) or chosen}"]
    if plan.measured.step_seconds:
        off = facts.forecast_off(record)
        known = f", {percent(off, signed=True)} against forecast" if off is not None else ", no forecast"
        held = "a rank" if plan.device == "cuda" else "a rank's whole process"
        memory = f" · {format_bytes(plan.measured.memory_bytes)} {held}" if plan.measured.memory_bytes else ""
        other = f" · of {run}" if (run := facts.trained_by(record)) else ""
        lines.append(f"          step {format_step(plan.measured.step_seconds)}{known}{memory}{other}")
    if parts := part_words(record):
        lines.append(f"          forecast {parts}")
    if plan.network:
        lines.append(f"          network, planned: {clean(plan.network, 400)}")
    if split_tiles := facts.split_tiles(record):
        lines.append(f"          network, found: {clean(split_tiles, 600)}")
    return lines


def _time(record: Record) -> list[str]:
    if record.ledger is None:
        return []
    causes = " · ".join(f"{cause} {percent(share)}" for cause, _, share in facts.ledger_rows(record.ledger)[:6])
    held = f"{format_seconds(record.ledger.allocated_seconds)} of {facts.time_of(record.ledger.resource)}"
    slow = [f"slow      {clean(said)}" for said in facts.held_up(record)]
    slow += [f"diagnosis {diagnosis_text(diagnosis)}" for diagnosis in record.diagnoses]
    lost = [f"          {clean(said)}" for said in [lost_work(record)] if said]
    return [
        f"time      {held}: {causes}", f"          useful share {share_words(record.ledger.useful_share)}", *lost, *slow
    ]  # fmt: skip


def _rest(record: Record) -> list[str]:
    lines = []
    if proof := record.proof:
        price = proof.loss_price
        loss = f"same loss: {proof.same_loss}" if price is None else f"lossy exchange cost {price:+.2g} of loss"
        lines.append(f"proof     {proof.plan}: {proof.tensors_equal} of {proof.tensors} tensors equal · {loss}")
    lines += [f"drill     {name}: {clean(said)}" for name, said in drill_rows(record)]
    lines += [f"variables {clean(event.text)}" for event in record.events if event.kind == ENVIRONMENT]
    if outputs_text := facts.outputs_text(record):
        lines.append(f"outputs   {clean(outputs_text)}")
    return [*lines, f"store     {record.prefix}"]
