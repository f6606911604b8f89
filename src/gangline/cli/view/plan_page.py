"""What `gangline plan` prints of a line on devices that are there: candidates, the chosen plan, owners, notes."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gangline.cli.output import columns, wrap_facts
from gangline.cli.view.plan_lines import (
    MOST_ROWS,
    bucket_line,
    budget_line,
    explained,
    forecast_line,
    number_line,
    restart_line,
    update_line,
)
from gangline.planner.choice import PlanChoice
from gangline.planner.layouts.layout import Layout, program_decides
from gangline.report.text import clean, percent, step_time
from gangline.spec.config.matrix_rule import read_matrix_rule
from gangline.spec.devices import Inventory
from gangline.spec.forecast import Forecast
from gangline.spec.plan import Candidate
from gangline.units import counted, format_bytes, format_count, format_number, format_seconds

if TYPE_CHECKING:
    from gangline.line.stages.preview import Preview


def plan_page(found: "Preview", *, why: bool, terms: str | None = None, width: int | None = None) -> str:
    """The whole page; `why` adds all plans and the parts of the best two, `terms` those of the plan of that name."""
    choice = found.choice
    if program_decides(found.request.line):
        return _programs(found, width)
    table = [f"{found.run} · {_have(found)}", "", candidate_table(choice.candidates, width=width, every=why), ""]
    samples = counted(choice.micro_batch, "sample")
    lines = [
        f"chosen    {choice.name}: {choice.reason}",
        f"          {samples} a rank and pass · {choice.precision} on {choice.device.upper()}",
        budget_line(found.budget),
    ]
    if choice.forecast.step_seconds is not None:
        lines.insert(-1, f"          {_forecast(choice.forecast, found.band)}")
    elif choice.forecast.missing:
        lines.insert(-1, f"          no step time: {choice.forecast.missing}")
    if bound := _bound(choice, found.request.line.train.global_batch):
        lines.insert(-1, f"          {bound}")
    if choice.forecast.bubble is not None:
        lines.insert(-1, f"          pipeline {choice.pp_schedule}: {choice.forecast.bubble:.0%} of its time idle")
    if other := _other_sizes(found):
        lines.append(f"elastic   {other}")
    lines += _optimizer(found, why=why)
    if found.sandbox.engine == "pod":
        lines.append(f"model     looked at in {found.sandbox.text}")
    lines += [f"data      {found.data}"] if found.data else []
    lines.append(f"packages  {found.environment}")
    lines += [f"note      {trouble}" for trouble in found.problems]
    shown = explained(choice, why=why, terms=terms)
    lines += [line for each in shown for line in _known(each, said=choice.forecast.missing)]
    return "\n".join([*table, *(part for line in lines for part in wrap_facts(line, width))])


def _optimizer(found: "Preview", *, why: bool) -> list[str]:
    """Owners of matrix updates, and with `why` who updates each parameter; nothing of a line without matrix rule."""
    line, choice = found.request.line, found.choice
    if (table := read_matrix_rule(line.optimizer)) is None:
        return []
    from gangline.line.stages.optimizer_plan import optimizer_plans, predicted, routing
    from gangline.optim.plan.explain import explain_ranks, explain_stages
    from gangline.optim.plan.routing import explain_routing

    routed = routing(line, found.profile)
    if not routed:
        return [f"optimizer {table.rule}: its matrices are not known before the run"]
    shape = Layout(choice.strategy, choice.mesh)
    plans = optimizer_plans(line, found.profile, shape, choice.device, pp_schedule=choice.pp_schedule)
    updates = choice.forecast.updates
    text = _RANKS_PLAN
    if plans:
        averaged = not shape.wrapping.shares_optimizer
        text = explain_stages(plans, predicted(plans, updates), averaged=averaged)
    lines = text.splitlines() + update_line(updates) + forecast_line(choice.forecast)
    lines += ["", *explain_ranks(plans), "", *explain_routing(routed).splitlines()] if why else []
    return [f"{'' if number else 'optimizer':10}{line}".rstrip() for number, line in enumerate(lines)]


def _programs(found: "Preview", width: int | None) -> str:
    """Page of a program that chooses its own plan: no table."""
    choice = found.choice
    lines = [
        f"plan      {choice.name} on {choice.device.upper()}; {choice.reason}",
        f"          {_TO_A_SESSION}",
        *([f"          {_forecast(choice.forecast, found.band)}"] if choice.forecast.step_seconds is not None else []),
        budget_line(found.budget),
        *([f"elastic   {other}"] if (other := _other_sizes(found)) else []),
        *([f"data      {found.data}"] if found.data else []),
        *(f"note      {trouble}" for trouble in found.problems),
    ]
    return "\n".join(
        [f"{found.run} · {_have(found)}", "", *(part for line in lines for part in wrap_facts(line, width))]
    )


_RANKS_PLAN = "ranks plan the owners of their matrices, and tell their number"
_TO_A_SESSION = "a Session in it trains copies of the model; train.strategy sets another way"


def _known(candidate: Candidate, *, said: str) -> list[str]:
    """Where a candidate's step comes from, and each of its parts; what it misses, unless that was `said` already."""
    forecast = candidate.forecast
    lines = [f"known     {candidate.name}: {forecast.origin}"]
    if forecast.memory_bytes is not None:
        lines.append(number_line("memory", format_bytes(forecast.memory_bytes), forecast.memory_origin))
    lines += [
        number_line(f"  {each.cause}", format_bytes(each.size_bytes), "formula") for each in forecast.memory_causes
    ]
    lines += [number_line(each.part, step_time(each.seconds), each.origin) for each in forecast.terms]
    if forecast.wire_bytes:
        lines.append(number_line("on the wire", format_bytes(forecast.wire_bytes), "a rank and step"))
    lines += [*bucket_line(forecast.buckets), *restart_line(forecast)]
    is_news = forecast.missing not in ("", said)
    return [*lines, f"            no step time: {forecast.missing}"] if is_news else lines


def _forecast(forecast: Forecast, band: float) -> str:
    """A step of the chosen plan: its largest parts, and how far to trust it."""
    large = (each for each in forecast.terms if each.seconds > 0.01 * (forecast.step_seconds or 0.0))
    largest = sorted(large, key=lambda each: -each.seconds)[:3]
    parts = ", ".join(f"{each.part} {step_time(each.seconds)}" for each in largest)
    made_of = f": {parts}" if parts else ""
    trust = "not corrected by any run yet" if forecast.is_first else f"within {percent(band)}"
    return f"step {step_time(forecast.step_seconds or 0.0)}{made_of} · {forecast.origin}, {trust}"


def _bound(choice: PlanChoice, global_batch: int) -> str:
    """What no plan on as many GPUs goes below, and how likely a failure stops it; empty: no rate is known."""
    forecast = choice.forecast
    if not forecast.flops_per_sample or not forecast.device_flops:
        return ""
    least = forecast.flops_per_sample * global_batch / (choice.mesh.world_size * forecast.device_flops)
    risk = forecast.interrupt_probability
    words = "" if risk is None else f" · P(interrupt) {percent(risk)}"
    return f"no step under {step_time(least)} on {choice.mesh.world_size} GPUs (compute){words}"


def _other_sizes(found: "Preview") -> str:
    """Other world sizes that the plan of an elastic line is ready for."""
    own = program_decides(found.request.line)
    worlds = ((size.mesh.world_size, "" if own else f" ({size.name})") for size in found.choice.sizes)
    ready = ", ".join(f"{world}{name}" for world, name in worlds)
    return f"ready for {ready} ranks, too: gangline resize RUN RANKS" if ready else ""


def _have(found: "Preview") -> str:
    """Available devices, and the size of the model."""
    machines = " and ".join(map(_machines, found.inventory.kinds))
    if program_decides(found.request.line):
        return machines
    parameters = found.choice.forecast.parameters
    model = f"{format_count(parameters)} parameters" if parameters is not None else "model size not known yet"
    return f"{machines} · {model}"


def _machines(kind: Inventory) -> str:
    gpus = kind.gpus
    machine = f"{gpus.count} x {gpus.name or 'GPU'}" if gpus else f"{kind.cores} cores"
    return f"{kind.num_nodes} nodes of {machine}" if kind.num_nodes > 1 else machine


_HEADER = ("PLAN", "", "MEMORY", "STEP", "TIME", "MONEY", "WHY")
_MONEY = _HEADER.index("MONEY")
_LEAST_ROOM = 36
"""Least width of a reason next to its numbers; with less it goes below them."""
_MOST_LETTERS = 160
_INDENT = " " * 4
_WORDS = {"chosen": "✓ chosen", "runner_up": "runner-up"}


def candidate_table(candidates: Sequence[Candidate], *, width: int | None, every: bool) -> str:
    """Best first, the chosen one marked.

    Args:
        candidates: As they are ranked.
        width: Of the terminal; None: no terminal, and a reason is one line.
        every: Also those far behind.
    """
    shown = candidates if every else candidates[:MOST_ROWS]
    rows = [_HEADER, *(_row(each) for each in shown)]
    if all(each.forecast.money in (None, 0.0) for each in shown):
        rows = [(*row[:_MONEY], *row[_MONEY + 1 :]) for row in rows]
    lines = _lines(rows, width)
    if left := len(candidates) - len(shown):
        lines.append(f"{left} more: gangline plan --why")
    return "\n".join(lines)


def _lines(rows: Sequence[tuple[str, ...]], width: int | None) -> list[str]:
    numbers = columns([(*row[:-1], "") for row in rows]).splitlines()
    start = max(map(len, columns([(*row[:-1], "|") for row in rows]).splitlines())) - 1
    reasons = [clean(row[-1], _MOST_LETTERS) for row in rows]
    if width is None:
        return [f"{line.ljust(start)}{reason}" for line, reason in zip(numbers, reasons, strict=True)]
    if width - start < _LEAST_ROOM:
        below = (textwrap.wrap(each, width, initial_indent=_INDENT, subsequent_indent=_INDENT) for each in reasons[1:])
        return [numbers[0], *(part for line, why in zip(numbers[1:], below, strict=True) for part in (line, *why))]
    beside = (textwrap.wrap(each, width - start) or [""] for each in reasons)
    return [
        f"{line if number == 0 else '':{start}}{part}".rstrip()
        for line, why in zip(numbers, beside, strict=True)
        for number, part in enumerate(why)
    ]


def _row(candidate: Candidate) -> tuple[str, ...]:
    """What is not known is a dash, never a guess."""
    forecast = candidate.forecast
    word = _WORDS.get(candidate.verdict, candidate.verdict.replace("_", " "))
    return (
        candidate.name,
        word,
        format_bytes(forecast.memory_bytes) if forecast.memory_bytes is not None else "-",
        step_time(forecast.step_seconds) if forecast.step_seconds is not None else "-",
        format_seconds(forecast.wall_seconds) if forecast.wall_seconds is not None else "-",
        _money(forecast.money),
        candidate.reason.removeprefix("no fit: "),
    )


def _money(money: float | None) -> str:
    if money is None:
        return "-"
    return f"{money:.2f}" if 0.01 <= money < 1000 else format_number(money)
