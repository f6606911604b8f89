"""Page of a plan for a model known by its shape: table, bound, risk, storage, and where each number comes from."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from gangline.cli.output import wrap_facts
from gangline.cli.view.plan_lines import (
    MOST_ROWS,
    bucket_line,
    budget_line,
    explained,
    number_line,
    restart_line,
    update_line,
)
from gangline.line.stages.hypothetical import HypotheticalPlan, saves_of
from gangline.line.stages.optimizer_plan import optimizer_plans, predicted
from gangline.optim.plan.explain import explain_ranks, explain_stages
from gangline.planner.choice import PlanChoice
from gangline.planner.cost.interruptions import StorageCost
from gangline.planner.cost.memory import num_owners
from gangline.planner.cost.optimizer import matrix_updates, optimizer_model
from gangline.planner.layouts.layout import Layout
from gangline.report.text import clean, percent, step_time
from gangline.spec.config.line import Line
from gangline.spec.config.matrix_rule import read_matrix_rule
from gangline.spec.config.site import Site
from gangline.spec.devices import Inventory
from gangline.spec.forecast import Forecast, MemoryCause
from gangline.spec.plan import Candidate
from gangline.units import format_bytes, format_count, format_seconds


def hypothetical_page(found: HypotheticalPlan, *, why: bool, terms: str | None = None, width: int | None = None) -> str:
    """The whole page; `width` None: no terminal."""
    line, choice, inventory = found.request.line, found.choice, found.inventory
    capacity = max(float(each.gpus.memory_bytes or 0) if each.gpus else 0.0 for each in inventory.kinds)
    settings = choice.search.settings if choice.search else {}
    table = formula_table(choice.candidates, settings, capacity_bytes=capacity, width=width, every=why)
    lines = [*_footer(choice, found.site), budget_line(found.budget)]
    saves = storage_lines(saves_of(found.site, choice, line, found.profile), found.site.plan.saves_to)
    lines += [f"saves     {each}" for each in saves]
    lines += _optimizer(found, why=why)
    if found.links:
        lines.append(f"links     {found.links}")
    if found.certificate is not None:
        lines.append(f"network   {found.certificate.line}")
    lines += [part for each in explained(choice, why=why, terms=terms) for part in why_lines(choice, each)]
    wrapped = [part for each in lines for part in wrap_facts(each, width)]
    heading = wrap_facts(_heading(line, found.site, inventory, choice), width)
    return "\n".join([*heading, table, *wrapped])


def _heading(line: Line, site: Site, inventory: Inventory, choice: PlanChoice) -> str:
    model, several = line.plan.transformer, bool(inventory.others)
    assert model is not None, "only such lines are planned for so"
    servers = " and ".join(_servers(each, named=several) for each in inventory.kinds)
    prices = [site.gpu[each.gpus.name].price_per_hour for each in inventory.kinds if each.gpus]
    rates = " and ".join("unknown" if price is None else f"{price:.2f}" for price in prices)
    money = f" · {rates} {site.money.currency} a GPU-hour" if any(price is not None for price in prices) else ""
    return (
        f"{format_count(choice.forecast.parameters or 0).replace(' G', ' B')} parameters · {servers}"
        f" · {line.train.global_batch} x {model.sequence:,} tokens · {line.train.steps:,} steps{money}"
    )


def _servers(kind: Inventory, *, named: bool) -> str:
    """Number, GPUs and memory of servers with one kind of GPU."""
    gpus = kind.gpus
    assert gpus is not None, "a hypothetical inventory has GPUs"
    servers = f"{kind.num_nodes} servers x {gpus.count} GPU" if kind.num_nodes > 1 else f"{gpus.count} GPU"
    return f"{servers} x {format_bytes(gpus.memory_bytes or 0)}{f' {gpus.name}' if named else ''}"


def _optimizer(found: HypotheticalPlan, *, why: bool) -> Iterator[str]:
    """Work of the matrix rule, and with `why` its owners; nothing of a line without one."""
    line, choice, profile = found.request.line, found.choice, found.profile
    if (table := read_matrix_rule(line.optimizer)) is None:
        return
    if (work := profile.matrix_work) is None:
        yield f"optimizer {table.rule}: its costs are not known before the run, it counts as the elementwise rule"
        return
    shape = Layout(choice.strategy, choice.mesh)
    sent = sum(each.wire_bytes for each in matrix_updates(work, shape.mesh, owners=num_owners(shape, work)))
    kept = optimizer_model(line.optimizer, profile).saved_bytes(profile.parameters)
    seconds = next((each.seconds for each in choice.forecast.terms if each.part == "optimizer"), None)
    taken = "" if seconds is None else f" · {step_time(seconds)} a step"
    yield (
        f"optimizer {work.rule}: {format_count(work.parameters)} parameters in matrices of blocks{taken} · state "
        f"{format_bytes(kept)} in all · {format_bytes(sent)} of parts and updates sent by each rank"
    )
    yield f"{'':10}exclude and routes do not count: a shape has no names"
    plans = optimizer_plans(line, profile, shape, "cuda", pp_schedule=choice.pp_schedule) if why else ()
    updates = choice.forecast.updates
    averaged = not shape.wrapping.shares_optimizer
    lines = explain_stages(plans, predicted(plans, updates), averaged=averaged).splitlines()
    yield from (f"{'':10}{each}" for each in [*lines, *update_line(updates), *explain_ranks(plans)])


def _footer(choice: PlanChoice, site: Site) -> Iterator[str]:
    search, overlap = choice.search, site.plan.overlap
    if search is not None:
        bound = "" if search.bound_seconds is None else (
            f" · no step under {search.bound_seconds:.2f} s on {choice.mesh.world_size} GPUs (compute)"
        )  # fmt: skip
        hidden = "overlap 0: worst case, not yet measured here" if not overlap else f"overlap {percent(overlap)}"
        pruned = search.num_candidates - search.num_weighed
        fit = f"{search.num_fit:,} fit" if not pruned else (
            f"{search.num_weighed:,} weighed, {search.num_fit:,} of them fit, the others lose by their bounds"
        )  # fmt: skip
        yield f"{search.num_candidates:,} candidates, {fit}{bound} · {hidden}"
    risk = interruption_words(choice.forecast, site.plan.failures)
    trust = "default: no records yet" if choice.forecast.is_first else choice.forecast.origin
    yield " · ".join(filter(None, [risk, f"forecast band {percent(site.plan.band)} ({trust})"]))
    if choice.forecast.missing:
        yield f"no step time: {choice.forecast.missing}"
    elif choice.forecast.wall_seconds is not None:
        yield f"training  {format_seconds(choice.forecast.wall_seconds)} on {choice.mesh.world_size} GPUs"


def why_lines(choice: PlanChoice, candidate: Candidate) -> list[str]:
    """The terms of one row of the table, each with its origin."""
    forecast, settings = candidate.forecast, choice.search.settings if choice.search else {}
    lines = [f"known     {settings.get(candidate.name, candidate.name)}: {forecast.way}"]
    lines += [number_line(each.cause, format_bytes(each.size_bytes), "formula") for each in forecast.memory_causes]
    lines += [number_line(each.part, _step(each.seconds), each.origin) for each in forecast.terms]
    return [*lines, *bucket_line(forecast.buckets), *_sums(forecast)]


def _sums(forecast: Forecast) -> Iterator[str]:
    if forecast.memory_bytes is not None:
        yield number_line("memory", format_bytes(forecast.memory_bytes), "sum of its causes")
    if forecast.step_seconds is not None:
        yield number_line("step", _step(forecast.step_seconds), "sum of its parts")
    yield from restart_line(forecast)
    if forecast.missing:
        yield f"            no step time: {forecast.missing}"


def _step(seconds: float) -> str:
    """Seconds of a step as the table has them: to two digits, less in milliseconds."""
    return f"{seconds:.2f} s" if seconds >= 1 else step_time(seconds)


CAUSES = {
    "weights": "wgt",
    "gradients": "grad",
    "optimizer": "optm",
    "activations": "activ",
    "buffers": "buf",
    "updates": "upd",
}
_WIDE = 100
"""Columns that the bytes of each cause have room in."""
_MARKS = 20
"""Length of the bar of a whole device."""
_LETTERS = {
    "weights": "W", "gradients": "G", "optimizer": "O", "activations": "A", "gathered": "B", "buffers": "B",
    "updates": "U",
}  # fmt: skip


def formula_table(
    candidates: Sequence[Candidate],
    settings: Mapping[str, str],
    *,
    capacity_bytes: float,
    width: int | None,
    every: bool,
) -> str:
    """The chosen plan first.

    Args:
        candidates: As they are ranked.
        settings: Names with the way that each is run.
        capacity_bytes: Of one device.
        width: Of the terminal; None: no terminal, and a reason follows its numbers on the same line.
        every: Also those far behind.
    """
    shown = candidates if every else shown_rows(candidates)
    name_width = max(len(settings.get(each.name, each.name)) for each in shown)
    mark = f"{capacity_bytes / 20 / 1e9:.0f} GB a mark"
    causes = [each for each in CAUSES if each != "updates" or _has_updates(shown)]
    header = f"  {'plan':{name_width}} {'memory, ' + mark:21}"
    header += (
        "".join(f"{word:>6}" for word in (*(CAUSES[each] for each in causes), "total")) + f"{'step':>8}{'money':>8}"
    )
    rows = [
        header
        if width is None or width >= _WIDE
        else header[: name_width + 25] + f"{'total':>6}{'step':>8}{'money':>8}"
    ]
    for each in shown:
        rows += _row(each, settings.get(each.name, each.name), name_width, capacity_bytes, width, shown=causes)
    if left := len(candidates) - len(shown):
        rows.append(f"  {left} more: gangline plan --why")
    return "\n".join(rows)


def shown_rows(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The nearest, those that ranks here run first, and of what does not fit the nearest two."""
    fits = [each for each in candidates if each.verdict != "no_fit"]
    runs = [each for each in fits if each.verdict != "unsupported"]
    others = [each for each in fits if each.verdict == "unsupported"]
    misses = [each for each in candidates if each.verdict == "no_fit"]
    return [*runs[: MOST_ROWS - 4], *others[:2], *misses[:2]]


def _has_updates(shown: Sequence[Candidate]) -> bool:
    return any(cause.cause == "updates" for each in shown for cause in each.forecast.memory_causes)


def _row(
    candidate: Candidate, name: str, name_width: int, capacity_bytes: float, width: int | None, *, shown: Sequence[str]
) -> list[str]:  # fmt: skip
    forecast = candidate.forecast
    star = "*" if candidate.verdict == "chosen" else " "
    by_cause = {each.cause: each.size_bytes for each in forecast.memory_causes}
    known = forecast.memory_bytes is not None
    total = f"{(forecast.memory_bytes or 0) / 1e9:6.1f}" if known else f"{'-':>6}"
    bar = memory_bar(forecast.memory_causes, capacity_bytes)
    has_time = candidate.verdict != "no_fit" and forecast.step_seconds is not None
    seconds = f"{forecast.step_seconds:8.2f}" if has_time else f"{'-':>8}"
    money = f"{forecast.money:8.0f}" if has_time and forecast.money is not None else f"{'-':>8}"
    reason = clean(candidate.reason.removeprefix("no fit: "), 160)
    word = candidate.verdict.replace("_", " ")
    reason = f"{word}: {reason}" if candidate.verdict in ("no_fit", "unsupported") else reason
    start = f"{star} {name:{name_width}} {bar}"
    causes = "".join(f"{by_cause.get(each, 0.0) / 1e9:6.1f}" if known else f"{'-':>6}" for each in shown)
    numbers = f"{start}{causes if width is None or width >= _WIDE else ''}{total}{seconds}{money}"
    if width is None:
        return [f"{numbers}  {reason}"]
    return [numbers, *textwrap.wrap(reason, width - 4, initial_indent="    ", subsequent_indent="    ")]


def storage_lines(costs: Sequence[StorageCost], saves_to: str | None) -> list[str]:
    """What saves to each class of storage would cost; the one that is counted is marked."""
    lines = []
    for each in costs:
        interval = "once" if each.interval_seconds == float("inf") else f"every {format_seconds(each.interval_seconds)}"
        counted = ", counted" if each.storage == saves_to else ""
        lines.append(
            f"{each.storage}: {format_seconds(each.write_seconds)} a save, {interval}, "
            f"{percent(1 - each.effective_share)} of the time lost{counted}"
        )
    return lines


def interruption_words(forecast: Forecast, failures: object) -> str:
    """`P(interrupt) 0.4 % (llama3)`; empty: not requested."""
    if forecast.interrupt_probability is None:
        return ""
    source = failures if isinstance(failures, str) else "given"
    return f"P(interrupt) {percent(forecast.interrupt_probability)} ({source})"


def memory_bar(causes: Sequence[MemoryCause], capacity_bytes: float) -> str:
    """`WOAAAAAAAAAAAAABB···`: each cause ends at the nearest mark; `>` at the end: there is more than the device has.

    Args:
        causes: In the order of the bar.
        capacity_bytes: Of the device.
    """
    bar, upto = "", 0.0
    for each in sorted(causes, key=lambda cause: list(_LETTERS).index(cause.cause)):
        upto += each.size_bytes
        bar += _LETTERS[each.cause] * (round(upto / capacity_bytes * _MARKS) - len(bar))
    return f"{bar[:_MARKS]}>" if len(bar) > _MARKS else bar.ljust(_MARKS, "·") + " "
