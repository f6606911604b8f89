"""The comment under a pull request and the page of a build: one screen of markdown, details folded below.

A forge takes 65,536 characters. Beyond 60,000 parts fall away in this order: artifacts, ranks, plan, changed paths,
events; the verdict never does.
"""

from collections.abc import Callable

from gangline.report import facts
from gangline.report.diagnoses import diagnosis_text
from gangline.report.inputs import input_digests
from gangline.report.next_commands import next_of_comment
from gangline.report.text import (
    ZERO_WIDTH_SPACE,
    change_words,
    clean,
    code,
    markdown,
    percent,
    place,
    quantity,
    share_words,
    short,
)
from gangline.report.training_facts import drill_rows, lost_work, part_words, training_rows
from gangline.sanitize import sanitized
from gangline.spec.plan import Candidate
from gangline.spec.record import Gate, Record
from gangline.units import format_bytes, format_number, format_seconds, format_step, sparkline

LIMIT = 60_000
VERDICT_MARKS = {"passed": "✓", "refused": "✗", "failed": "✗", "cancelled": "■", "superseded": "■", "open": "▸"}
Part = Callable[[Record], str]
_MARKS = 16
"""Width of a curve."""
_NUMBERS = ("| | base | this | change | band | |", "|---|---:|---:|---:|---:|---|")
_HERE = {"comment", "forge"}
"""Names of links that lead to the place of the comment itself."""


def render_markdown(record: Record, *, limit: int = LIMIT) -> str:
    """Verdict, gates, numbers against bands, plan, lost time, what next, links; then the folded parts that fit."""
    record = sanitized(record)
    parts: list[Part] = [_head, _numbers, _curve, _plan, _lost, _drills, _training, _next, _links]
    folded: list[Part] = [_other_numbers, _outputs, _events, _changed, _candidates, _ranks, _artifacts]
    essential = [part(record) for part in parts]
    details = [part(record) for part in (_stages, _pinned, _reproduce, *folded)]
    while len(text := "\n\n".join(filter(None, essential + details)) + "\n") > limit and details:
        details.pop()
    return text


def _head(record: Record) -> str:
    lines = [_verdict(record)]
    if marked := facts.mark_words(record):
        lines.append(f"**{markdown(marked, 300)}**")
    if gates := " · ".join(_gate(gate) for gate in facts.gate_order(record.gates)[:20]):
        lines.append(gates)
    lines += [f"**unreported** {markdown(said)}" for said in facts.unreported(record)[:4]]
    lines += [f"**undeclared** {markdown(said)}" for said in facts.undeclared(record)[-1:]]
    if (step := facts.first_outside(record)) is not None:
        lines.append(f"{markdown(record.curve.metric, 60)} outside the base band from step {step:,}")
    return "  \n".join(lines)


def _verdict(record: Record) -> str:
    """How the run ended; of an open run, what it waits for, or its progress."""
    word = facts.verdict_word(record)
    if word != "open":
        return (
            f"**{VERDICT_MARKS[word]} {facts.verdict_text(record)}** {markdown(facts.verdict_reason(record))}".rstrip()
        )
    return f"**{VERDICT_MARKS[word]} {'waits' if (why := _waits(record)) else 'open'}** {why or _progress(record)}"


def _waits(record: Record) -> str:
    if record.commit.trust == "fork" and record.run.approved is None:
        return f"for a maintainer to read this fork's code: {code(f'gangline approve {record.run.id}')} lets it run"
    waiting = record.gang.waiting if record.gang else None
    if waiting is None:
        return ""
    until = f" until {markdown(waiting.until, 60)}" if waiting.until else ""
    now = f"; would start now: {markdown(waiting.would_start_now, 120)}" if waiting.would_start_now else ""
    return f"{markdown(waiting.who, 300)}{until}{now}"


def _progress(record: Record) -> str:
    begun = [name for name, info in facts.stages_in_order(record) if info.state != "waiting"]
    return f"at {begun[-1]}" if begun else "not begun"


def _gate(gate: Gate) -> str:
    """The reason, unless the mark already says it."""
    said = f" {markdown(gate.reason, 160)}" if gate.verdict != "yes" or gate.name == "budget" else ""
    return f"{facts.MARKS[gate.verdict]} {markdown(gate.name, 60)}{said}"


def _numbers(record: Record) -> str:
    return "\n".join([*_NUMBERS, *map(_number_row, facts.shown_metrics(record)[0])]) if record.metrics else ""


def _other_numbers(record: Record) -> str:
    _, others = facts.shown_metrics(record)
    return _fold(f"{len(others)} more metrics", ["", *_NUMBERS, *map(_number_row, others)] if others else [])


def _number_row(judged: facts.JudgedMetric) -> str:
    metric = judged.metric
    base = metric.base_band.center if metric.base_band else metric.base
    cells = (
        markdown(judged.name, 60) + (f"@{ZERO_WIDTH_SPACE}{metric.step}" if metric.step else ""),
        markdown(quantity(base, metric.unit), 60) if base is not None else "-",
        markdown(quantity(metric.value, metric.unit), 60),
        change_words(judged.change),
        f"±{percent(judged.band)}" if judged.band is not None else "-",
        facts.SIDE_MARKS[judged.side] if judged.side != "unknown" else "",
    )
    return f"| {' | '.join(cells)} |"


def _curve(record: Record) -> str:
    points = record.curve.points
    if not points:
        return ""
    name = markdown(record.curve.metric, 60)
    banded = [(p.value, (p.low + p.high) / 2) for p in points if p.low is not None and p.high is not None]
    if not banded:
        return f"{name} `{sparkline([point.value for point in points], _MARKS)}` {facts.curve_end(record)}"
    this, base = ([pair[at] for pair in banded] for at in (0, 1))
    drawn = sparkline([*base, *this], min(len(banded), _MARKS) * 2)  # at once, so that both have one scale
    half = len(drawn) // 2
    return f"{name} base `{drawn[:half]}` {format_number(base[-1])} · this `{drawn[half:]}` {facts.curve_end(record)}"


def _plan(record: Record) -> str:
    plan = record.plan
    if plan is None:
        return ""
    mesh = f" ({words})" if (words := facts.mesh_words(plan.mesh, plan.shares)) else ""
    chosen = f"{markdown(plan.name, 60)}{mesh}: {markdown(plan.reason)}"
    text = f"**plan** {facts.program_decides(record) or chosen}"
    second = next((c for c in plan.candidates if c.verdict == "runner_up"), None)
    if second and not facts.program_decides(record):
        text += f" · runner-up {markdown(second.name, 60)}: {markdown(second.reason)}"
    if measured := plan.measured.step_seconds:
        text += f" · step {format_step(measured)}" + (f" of {run}" if (run := facts.trained_by(record)) else "")
    off, forecast = facts.forecast_off(record), plan.forecast.step_seconds
    if off is not None and forecast:
        text += f", forecast {format_step(forecast)} ({percent(off, signed=True)})"
    if parts := part_words(record):
        text += f" · forecast {parts}"
    if split_tiles := facts.split_tiles(record):
        text += f" · {markdown(split_tiles, 600)}"
    return text


def _lost(record: Record) -> str:
    if record.ledger is None:
        return ""
    lost = [(cause, share) for cause, _, share in facts.ledger_rows(record.ledger) if cause != "compute"]
    causes = [f"{markdown(cause, 30)} {percent(share)}" for cause, share in lost[:4]]
    if rest := sum(share for _, share in lost[4:]):
        causes.append(f"other causes {percent(rest)}")
    useful = record.ledger.useful_share
    lost_share = percent(1 - useful) if useful is not None else "an unknown share"
    whole = f"**lost** {lost_share} of {facts.time_of(record.ledger.resource)}"
    text = f"**useful share** {share_words(useful)} · "
    text += f"{whole}: {' · '.join(causes)}" if causes else whole
    text += f" · {markdown(said)}" if (said := lost_work(record)) else ""
    slowest = facts.slowest_rank(record)
    if bound := [diagnosis for diagnosis in record.diagnoses if diagnosis.kind == "bound"]:
        text += f" · {markdown(diagnosis_text(bound[0]))}"
    if slow := facts.held_up(record):
        text += "".join(f" · {markdown(said)}" for said in slow[:4])
        others = [diagnosis for diagnosis in record.diagnoses if diagnosis.kind != "bound"]
        text += "".join(f" · {markdown(diagnosis_text(other))}" for other in others[:4])
    elif slowest and slowest[2] > 0.02:
        text += (
            f" · slowest rank {slowest[0]} on {markdown(place(slowest[1]), 60)} ({percent(slowest[2], signed=True)})"
        )
    return text


def _drills(record: Record) -> str:
    rows = drill_rows(record)[:8]
    return "  \n".join(f"**drill** {markdown(name, 40)}: {markdown(said)}" for name, said in rows)


def _training(record: Record) -> str:
    said = " · ".join(f"{name} {markdown(said)}" for name, said in training_rows(record))
    return f"**training** {said}" if said else ""


def _next(record: Record) -> str:
    command = next_of_comment(record)
    return f"**next** {code(command)}" if command else ""


def _links(record: Record) -> str:
    safe = {name: url for name, url in record.links.items() if url.startswith(("https://", "http://"))}
    shown = " · ".join(
        f"[{markdown(name, 30)}](<{_url(url)}>)" for name, url in sorted(safe.items()) if name not in _HERE
    )
    run = f"run {code(record.run.id, 60)} · commit {code(short(record.commit.sha))}"
    return f"{run} · {format_seconds(facts.total_seconds(record))}" + (f" · {shown}" if shown else "")


def _url(url: str) -> str:
    return clean(url, 500).replace("<", "%3C").replace(">", "%3E").replace(" ", "%20")


def _fold(title: str, lines: list[str]) -> str:
    return f"<details><summary>{title}</summary>\n\n" + "\n".join(lines) + "\n\n</details>" if lines else ""


def _stages(record: Record) -> str:
    rows = ["| stage | state | time | |", "|---|---|---:|---|"]
    for name, info in facts.stages_in_order(record):
        spent = format_seconds(info.seconds) if info.seconds is not None else "-"
        rows.append(f"| {name} | {info.state} | {spent} | {markdown(info.message)} |")
    return _fold("stages", rows)


def _pinned(record: Record) -> str:
    rows = [
        f"| {facts.MARKS[row.pinned]} | {markdown(row.name, 40)} | {markdown(row.by, 300)} |"
        for row in facts.pinned_rows(record)
    ]
    return _fold("what is pinned", ["| | | by |", "|---|---|---|", *rows] if rows else [])


def _reproduce(record: Record) -> str:
    lines = [f"    {clean(command)}" for command in facts.reproduce_commands(record)]
    return _fold("reproduce, digests", [*lines, "", *(f"- {n} {code(d, 80)}" for n, d in input_digests(record))])


def _candidates(record: Record) -> str:
    rows = [f"- {markdown(c.name, 60)} ({c.verdict.replace('_', ' ')}): {markdown(c.reason)}" for c in _of_plan(record)]
    return _fold("plans considered", rows)


def _of_plan(record: Record) -> tuple[Candidate, ...]:
    return record.plan.candidates if record.plan and not facts.program_decides(record) else ()


def _ranks(record: Record) -> str:
    held = "memory of its process" if record.plan and record.plan.device == "cpu" else "memory"
    head = [f"| rank | node | step | wait | {held} |", "|---:|---|---:|---:|---:|"]
    rows = [
        f"| {row.rank} | {markdown(place(row.node), 60)} "
        f"| {format_step(row.step_seconds) if row.step_seconds else '-'} "
        f"| {format_seconds(row.phases.get('wait', 0.0))} "
        f"| {format_bytes(row.peak_memory_bytes) if row.peak_memory_bytes else '-'} |"
        for row in record.ranks
    ]
    return _fold("ranks", head + rows if rows else [])


def _artifacts(record: Record) -> str:
    rows = [
        f"- {markdown(a.kind, 30)} {code(a.key, 300)} {format_bytes(a.size_bytes)} {code(short(a.sha256, 12))}"
        for a in record.artifacts
    ]
    return _fold("artifacts", rows)


def _outputs(record: Record) -> str:
    info = record.outputs
    if info is None:
        return ""
    rows = [f"- {code(f.path, 300)} {format_bytes(f.size_bytes)} {code(short(f.sha256, 12))}" for f in info.files]
    if info.num_files > len(info.files):
        rows.append(f"- {info.num_files - len(info.files)} more, {format_bytes(info.size_bytes)} in all")
    rows += [f"- left out: {code(file.path, 300)}, {markdown(file.reason)}" for file in info.left_out]
    return _fold("outputs", rows or [f"- {markdown(info.refused or 'none was written')}"])


def _changed(record: Record) -> str:
    return _fold("changed paths", [f"- {markdown(path, 200)}" for path in record.commit.changed])


def _events(record: Record) -> str:
    rows = [f"- {markdown(e.time, 30)} {markdown(e.stage, 20)} {markdown(e.text)}" for e in record.events[-40:]]
    return _fold("events", rows)
