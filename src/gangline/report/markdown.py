"""The comment under a pull request and the page of a build: one screen of markdown, details folded below.

A forge takes 65,536 characters. Beyond 60,000 parts fall away in this order: artifacts, ranks, plan, changed paths,
events; the verdict never does.
"""

from collections.abc import Callable

from gangline.report.facts import (
    MARKS,
    SIDE_MARKS,
    Judged,
    first_outside,
    forecast_off,
    gate_order,
    judge,
    ledger_rows,
    reproduce_commands,
    slowest_rank,
    stages_in_order,
    total_seconds,
    verdict_reason,
    verdict_word,
)
from gangline.report.text import clean, markdown, percent, place, quantity, short, step_time
from gangline.spec.plan import Candidate
from gangline.spec.record import Record
from gangline.units import format_bytes, format_number, format_seconds, sparkline

LIMIT = 60_000
VERDICT_MARKS = {"passed": "✓", "refused": "✗", "failed": "✗", "cancelled": "■", "superseded": "■", "open": "▸"}
Part = Callable[[Record], str]


def render_markdown(record: Record) -> str:
    """Verdict, gates, numbers against bands, plan, lost time, links; then the folded parts that fit."""
    parts: list[Part] = [_head, _waiting, _numbers, _curve, _plan, _lost, _links]
    folded: list[Part] = [_events, _changed, _candidates, _ranks, _artifacts]
    essential = [part(record) for part in parts]
    details = [part(record) for part in (_stages, _reproduce, *folded)]
    while len(text := "\n\n".join(filter(None, essential + details)) + "\n") > LIMIT and details:
        details.pop()
    return text


def _head(record: Record) -> str:
    word = verdict_word(record)
    gates = " ".join(f"{MARKS[g.verdict]} {markdown(g.name, 60)}" for g in gate_order(record.gates)[:20])
    first = f"**{VERDICT_MARKS[word]} {word}** {markdown(verdict_reason(record))}".rstrip()
    lines = [first, gates] if gates else [first]
    if (step := first_outside(record)) is not None:
        lines.append(f"{markdown(record.curve.metric, 60)} outside the base band from step {step:,}")
    return "  \n".join(lines)


def _waiting(record: Record) -> str:
    waiting = record.gang.waiting if record.gang else None
    if waiting is None or record.run.state == "ended":
        return ""
    until = f" until {markdown(waiting.until, 60)}" if waiting.until else ""
    now = f"; would start now: {markdown(waiting.would_start_now, 120)}" if waiting.would_start_now else ""
    return f"waits: {markdown(waiting.who, 300)}{until}{now}"


def _numbers(record: Record) -> str:
    judged = [judge(name, record.metrics[name]) for name in sorted(record.metrics)[:16]]
    if not judged:
        return ""
    rows = ["| | base | this | change | band | |", "|---|---:|---:|---:|---:|---|"]
    return "\n".join(rows + [_number_row(each) for each in judged])


def _number_row(judged: Judged) -> str:
    metric = judged.metric
    base = metric.base_band.center if metric.base_band else metric.base
    cells = (
        markdown(judged.name, 60) + (f"&#64;{metric.step}" if metric.step else ""),
        markdown(quantity(base, metric.unit), 60) if base is not None else "-",
        markdown(quantity(metric.value, metric.unit), 60),
        percent(judged.change, signed=True) if judged.change is not None else "-",
        f"±{percent(judged.band)}" if judged.band is not None else "-",
        SIDE_MARKS[judged.side] if judged.side != "unknown" else "",
    )
    return f"| {' | '.join(cells)} |"


def _curve(record: Record) -> str:
    points = record.curve.points
    if not points:
        return ""
    line = sparkline([point.value for point in points], 16)
    words = f"{markdown(record.curve.metric, 60)} `{line}` {format_number(points[-1].value)}"
    centers = [(p.low + p.high) / 2 for p in points if p.low is not None and p.high is not None]
    return f"{words} · base `{sparkline(centers, 16)}` {format_number(centers[-1])}" if centers else words


def _plan(record: Record) -> str:
    plan = record.plan
    if plan is None:
        return ""
    text = f"plan **{markdown(plan.name, 60)}**: {markdown(plan.reason)}"
    second = next((c for c in plan.candidates if c.verdict == "runner_up"), None)
    if second:
        text += f" · runner-up {markdown(second.name, 60)}: {markdown(second.reason)}"
    off = forecast_off(record)
    return text + (f" · step {percent(off, signed=True)} against forecast" if off is not None else "")


def _lost(record: Record) -> str:
    if record.ledger is None:
        return ""
    lost = [(cause, share) for cause, _, share in ledger_rows(record.ledger) if cause != "compute"]
    shown = " · ".join(f"{cause} {percent(share)}" for cause, share in lost[:4])
    rest = sum(share for _, share in lost[4:])
    other = f" · other causes {percent(rest)}" if rest else ""
    text = f"useful share {percent(record.ledger.useful_share)}; the rest: {shown}{other}"
    slowest = slowest_rank(record)
    if slowest and slowest[2] > 0.02:
        text += (
            f" · slowest rank {slowest[0]} on {markdown(place(slowest[1]), 60)} ({percent(slowest[2], signed=True)})"
        )
    return text


def _links(record: Record) -> str:
    safe = {name: url for name, url in record.links.items() if url.startswith(("https://", "http://"))}
    shown = " · ".join(f"[{markdown(name, 30)}](<{_url(url)}>)" for name, url in sorted(safe.items()))
    run = f"run `{clean(record.run.id, 60)}` · commit `{short(record.commit.sha)}`"
    return f"{run} · {format_seconds(total_seconds(record))}" + (f" · {shown}" if shown else "")


def _url(url: str) -> str:
    return clean(url, 500).replace("<", "%3C").replace(">", "%3E").replace(" ", "%20")


def _fold(title: str, lines: list[str]) -> str:
    return f"<details><summary>{title}</summary>\n\n" + "\n".join(lines) + "\n\n</details>" if lines else ""


def _stages(record: Record) -> str:
    rows = ["| stage | state | time | |", "|---|---|---:|---|"]
    for name, info in stages_in_order(record):
        spent = format_seconds(info.seconds) if info.seconds is not None else "-"
        rows.append(f"| {name} | {info.state} | {spent} | {markdown(info.message)} |")
    return _fold("stages", rows)


def _reproduce(record: Record) -> str:
    inputs = record.inputs
    digests = {"line": inputs.line, "code": inputs.code, "environment": inputs.environment, "data": inputs.data}
    lines = [f"    {clean(command)}" for command in reproduce_commands(record)]
    return _fold("reproduce, digests", [*lines, "", *(f"- {n} `{clean(d, 80) or '-'}`" for n, d in digests.items())])


def _candidates(record: Record) -> str:
    rows = [f"- {markdown(c.name, 60)} ({c.verdict.replace('_', ' ')}): {markdown(c.reason)}" for c in _of_plan(record)]
    return _fold("plans considered", rows)


def _of_plan(record: Record) -> tuple[Candidate, ...]:
    return record.plan.candidates if record.plan else ()


def _ranks(record: Record) -> str:
    head = ["| rank | node | step | wait | memory |", "|---:|---|---:|---:|---:|"]
    rows = [
        f"| {row.rank} | {markdown(place(row.node), 60)} | {step_time(row.step_seconds) if row.step_seconds else '-'} "
        f"| {format_seconds(row.phases.get('wait', 0.0))} "
        f"| {format_bytes(row.peak_memory_bytes) if row.peak_memory_bytes else '-'} |"
        for row in record.ranks
    ]
    return _fold("ranks", head + rows if rows else [])


def _artifacts(record: Record) -> str:
    rows = [
        f"- {markdown(a.kind, 30)} `{clean(a.key, 300).replace('`', '')}` "
        f"{format_bytes(a.size_bytes)} `{short(a.sha256, 12)}`"
        for a in record.artifacts
    ]
    return _fold("artifacts", rows)


def _changed(record: Record) -> str:
    return _fold("changed paths", [f"- {markdown(path, 200)}" for path in record.commit.changed])


def _events(record: Record) -> str:
    rows = [f"- {markdown(e.time, 30)} {markdown(e.stage, 20)} {markdown(e.text)}" for e in record.events[-40:]]
    return _fold("events", rows)
