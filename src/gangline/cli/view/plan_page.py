"""Page of `gangline plan`: table, chosen plan and notes, alike for an inspected model and one known by its shape."""

from collections.abc import Iterator
from math import isinf
from typing import TYPE_CHECKING, Union

from gangline.cli.output import wrap_facts
from gangline.cli.view.plan_table import money_words, plan_table, step_words
from gangline.planner.choice import PlanChoice
from gangline.planner.layouts.layout import program_decides
from gangline.planner.pool import gpu_table
from gangline.report.facts import MARKS
from gangline.report.text import percent
from gangline.spec.config.matrix_rule import read_matrix_rule
from gangline.spec.config.optimizer import optimizer_problems
from gangline.spec.config.site import Site
from gangline.spec.devices import Inventory
from gangline.spec.forecast import GradientBuckets
from gangline.spec.plan import Candidate
from gangline.units import counted, format_bytes, format_count, format_seconds, format_step

if TYPE_CHECKING:
    from gangline.line.stages.hypothetical import HypotheticalPlan
    from gangline.line.stages.preview import Preview

Planned = Union["Preview", "HypotheticalPlan"]
Fact = tuple[str, str]
"""A line of the page: a label, empty where it goes on with the one above, and text."""

_EXPLAINED = 2
"""Plans whose numbers are printed one by one: the best, and the one it was hardest to choose from."""


def plan_page(found: "Preview", *, why: bool, terms: str | None = None, width: int | None = None) -> str:
    """Page of a line on devices that are there.

    Args:
        found: The plan, and what it was made from.
        why: Show all plans, and the numbers of the best two.
        terms: Name of a plan whose numbers to show.
        width: Columns of the terminal; None: there is none, and no line is wrapped.
    """
    is_program = program_decides(found.request.line)
    is_in_pod = found.sandbox.engine == "pod" and not is_program
    facts = [
        ("model", f"looked at in {found.sandbox.text}" if is_in_pod else ""), ("data", found.data),
        ("packages", found.environment), *(("note", trouble) for trouble in found.problems),
    ]  # fmt: skip
    return _page(found, [found.run], facts, is_program=is_program, why=why, terms=terms, width=width)


def hypothetical_page(
    found: "HypotheticalPlan", *, why: bool, terms: str | None = None, width: int | None = None
) -> str:
    """Page of a line on devices that are asked about; arguments are those of `plan_page`."""
    facts = [("links", found.links), ("network", found.certificate.line if found.certificate else "")]
    return _page(found, [], facts, is_program=False, why=why, terms=terms, width=width)


def _page(
    found: Planned, title: list[str], more: list[Fact], *, is_program: bool, why: bool, terms: str | None,
    width: int | None,
) -> str:  # fmt: skip
    """Lines of both kinds of page; of a program that decides how it trains there is no table."""
    choice = found.choice
    facts = [
        *_chosen(choice, is_program), *(("", each) for each in _forecast(found, is_program)),
        *_search(choice), ("budget", f"{MARKS[found.budget.verdict]} {found.budget.reason}"),
        ("elastic", _other_sizes(choice, is_program)), *_saves(found),
        *(() if is_program else _optimizer(found, why=why)), *more,
    ]  # fmt: skip
    lines = [f"{label:10}{text}".rstrip() for label, text in facts if text]
    table = []
    if not is_program:
        rows = choice.rows()
        capacity = max(_memory_bytes(kind, found.site) for kind in found.inventory.kinds)
        table = [plan_table(rows, capacity_bytes=capacity, width=width, every=why), ""]
        explained = [choice.candidate(terms)] if terms else choice.candidates[:_EXPLAINED] if why else ()
        lines += [line for name, candidate in rows if candidate in explained for line in known_lines(name, candidate)]
    heading = wrap_facts(" · ".join([*title, *_heading(found, is_program)]), width)
    return "\n".join([*heading, "", *table, *(part for line in lines for part in wrap_facts(line, width))])


def _heading(found: Planned, is_program: bool) -> Iterator[str]:
    """Devices, the model, the work and the price."""
    line, site, kinds = found.request.line, found.site, found.inventory.kinds
    yield " and ".join(_devices(kind, site) for kind in kinds)
    if is_program:
        return
    parameters = found.choice.forecast.parameters
    model = line.plan.transformer or (found.profile.transformer if found.profile else None)
    size = "model size not known yet" if parameters is None else f"{format_count(parameters)} parameters"
    yield size.replace(" G ", " B ")
    batch = line.train.global_batch
    yield f"{batch:,} x {model.sequence:,} tokens" if model else counted(batch, "sample")
    yield counted(line.train.steps, "step")
    prices = [table.price_per_hour for kind in kinds if kind.gpus and (table := gpu_table(site, kind.gpus.name))]
    if any(price is not None for price in prices):
        rates = " and ".join("unknown" if price is None else f"{price:.2f}" for price in prices)
        yield f"{rates} {site.money.currency} a GPU-hour"


def _devices(kind: Inventory, site: Site) -> str:
    """`2 servers x 8 h100 x 80 GB`, `2 cores`."""
    gpus = kind.gpus
    machine = f"{gpus.count} {gpus.name or 'GPU'}" if gpus else counted(kind.cores, "core")
    memory = _memory_bytes(kind, site)
    servers = [f"{kind.num_nodes} servers"] if kind.num_nodes > 1 else []
    return " x ".join([*servers, machine, *([format_bytes(memory)] if memory else [])])


def _memory_bytes(kind: Inventory, site: Site) -> float:
    """Memory of one GPU; 0: not known, or there is none."""
    if kind.gpus is None:
        return 0.0
    table = gpu_table(site, kind.gpus.name)
    return float(kind.gpus.memory_bytes or (table.memory_bytes if table else 0))


def _chosen(choice: PlanChoice, is_program: bool) -> Iterator[Fact]:
    if is_program:
        yield "plan", f"{choice.name} on {choice.device.upper()}; {choice.reason}"
        yield "", "a Session in it trains copies of the model; train.strategy sets another way"
        return
    name, _ = choice.rows()[0]
    yield "chosen", f"{name}: {choice.reason}"
    samples = counted(choice.micro_batch, "sample")
    yield "", f"{samples} a rank and pass · {choice.precision} on {choice.device.upper()}"
    if choice.forecast.bubble is not None:
        yield "", f"pipeline {choice.pp_schedule}: {percent(choice.forecast.bubble)} of its time idle"


def _forecast(found: Planned, is_program: bool) -> Iterator[str]:
    """A step by its largest parts, how far to trust it, what no plan goes below, and the whole training."""
    choice, plan = found.choice, found.site.plan
    forecast, gpus = choice.forecast, f"{choice.mesh.world_size:,} GPUs"
    if forecast.step_seconds is not None:
        large = [term for term in forecast.terms if term.seconds > 0.01 * forecast.step_seconds]
        largest = sorted(large, key=lambda term: -term.seconds)[:3]
        parts = ", ".join(f"{term.part} {step_words(term.seconds)}" for term in largest)
        trust = f"within {percent(plan.band)}"
        if forecast.is_first:  # cores are shared, so that the band of plans on them is another one
            band = f", band {percent(plan.band)}" if choice.device == "cuda" else ""
            trust = f"not corrected by any run yet{band}"
        made_of = f": {parts}" if parts else ""
        yield f"step {step_words(forecast.step_seconds)}{made_of} · {forecast.origin}, {trust}"
    elif forecast.missing and not is_program:
        yield f"no step time: {forecast.missing}"
    if (least := _bound_seconds(choice, found.request.line.train.global_batch)) is not None:
        hidden = f"overlap {percent(plan.overlap)}" if plan.overlap else "overlap 0: worst case, not yet measured here"
        yield f"no step under {step_words(least)} on {gpus} (compute) · {hidden}"
    if forecast.wall_seconds is not None:
        ranks = gpus if choice.device == "cuda" else counted(choice.mesh.world_size, "rank")
        source = plan.failures if isinstance(plan.failures, str) else "given"
        risk, money = forecast.interrupt_probability, forecast.money
        facts = [
            f"training {format_seconds(forecast.wall_seconds)} on {ranks}",
            f"{money_words(money)} {found.site.money.currency}" if money else "",
            "" if risk is None else f"P(interrupt) {percent(risk)} ({source})",
        ]
        yield " · ".join(filter(None, facts))


def _bound_seconds(choice: PlanChoice, global_batch: int) -> float | None:
    """Seconds that no step on as many GPUs takes less than; None: no rate is known."""
    if choice.search is not None:
        return choice.search.bound_seconds
    forecast = choice.forecast
    if not forecast.flops_per_sample or not forecast.device_flops:
        return None
    return forecast.flops_per_sample * global_batch / (choice.mesh.world_size * forecast.device_flops)


def _search(choice: PlanChoice) -> Iterator[Fact]:
    if (search := choice.search) is None:
        return
    fit = f"{search.num_fit:,} fit"
    if search.num_weighed < search.num_candidates:
        fit = f"{search.num_weighed:,} weighed, {search.num_fit:,} of them fit, the others lose by their bounds"
    yield "searched", f"{search.num_candidates:,} candidates, {fit}"


def _other_sizes(choice: PlanChoice, is_program: bool) -> str:
    """Other world sizes that the plan of an elastic line is ready for."""
    worlds = ((size.mesh.world_size, "" if is_program else f" ({size.name})") for size in choice.sizes)
    ready = ", ".join(f"{world}{name}" for world, name in worlds)
    return f"ready for {ready} ranks, too: gangline resize RUN RANKS" if ready else ""


def _saves(found: Planned) -> Iterator[Fact]:
    """What saves to each class of storage would cost on GPUs, as far as the training is longer than the interval
    between them; the class that is counted is marked."""
    if found.choice.device != "cuda" or found.profile is None or not found.profile.parameters:
        return
    from gangline.line.stages.hypothetical import saves_of  # cores have no chance of a failure

    for storage_cost in saves_of(found.site, found.choice, found.request.line, found.profile):
        is_counted = storage_cost.storage == found.site.plan.saves_to
        if is_counted or storage_cost.interval_seconds <= (
            found.choice.forecast.wall_seconds or storage_cost.interval_seconds
        ):
            often = (
                "once"
                if isinf(storage_cost.interval_seconds)
                else f"every {format_seconds(storage_cost.interval_seconds)}"
            )
            cost = f"{storage_cost.storage}: {format_seconds(storage_cost.write_seconds)} a save, {often}"
            lost = f"{percent(1 - storage_cost.effective_share)} of the time lost{', counted' if is_counted else ''}"
            yield "saves", f"{cost}, {lost}"


def _optimizer(found: Planned, *, why: bool) -> list[Fact]:
    """What the task's own optimizer counts as; or work of a matrix rule and owners, with `why` who updates what."""
    options = found.request.line.optimizer
    if (found.profile is not None and found.profile.builds_optimizer) or any(optimizer_problems(options)):
        return [("optimizer", "left to build_optimizer of the task: what it keeps is not known, AdamW counts")]
    if (table := read_matrix_rule(options)) is None:
        return []
    from gangline.cli.view.matrix_rule_lines import matrix_rule_lines  # most lines have no matrix rule

    lines = matrix_rule_lines(table.rule, found.request.line, found.choice, found.profile, why=why)
    return [("" if number else "optimizer", line) for number, line in enumerate(lines)]


def known_lines(name: str, candidate: Candidate) -> Iterator[str]:
    """Numbers of one plan, each with where it comes from: memory and its causes, the step and its parts."""
    forecast = candidate.forecast
    yield f"known     {name}{f': {forecast.way}' if forecast.way else ''}"
    if forecast.memory_bytes is not None:
        yield _number("memory", format_bytes(forecast.memory_bytes), forecast.memory_origin)
    for cause in forecast.memory_causes:
        yield _number(f"  {cause.cause}", format_bytes(cause.size_bytes), "formula")
    if forecast.step_seconds is not None:
        yield _number("step", step_words(forecast.step_seconds), forecast.origin)
    for term in forecast.terms:
        yield _number(f"  {term.part}", step_words(term.seconds), term.origin)
    if forecast.wire_bytes:
        yield _number("on the wire", format_bytes(forecast.wire_bytes), "a rank and step")
    if forecast.buckets is not None:
        yield _number("buckets", str(forecast.buckets.count), _exposed(forecast.buckets))
    if forecast.restart is not None:
        yield _number("restart", format_seconds(forecast.restart.seconds), forecast.restart.origin)
    if forecast.missing:
        yield f"            no step time: {forecast.missing}"


def _number(name: str, number: str, origin: str) -> str:
    return f"            {name:15} {number:>9}  {origin}"


def _exposed(buckets: GradientBuckets) -> str:
    whose = "given" if buckets.is_given else "torch's own"
    size = f"of {format_bytes(buckets.size_bytes)}, {whose}"
    if buckets.exposed_seconds is None or buckets.best_exposed_seconds is None or buckets.latency_seconds is None:
        return f"{size}; what they leave exposed is not known: no such message was measured, and no latency is given"
    return (
        f"{size}; {format_step(buckets.exposed_seconds)} after backward on a link of their own, "
        f"{format_step(buckets.best_exposed_seconds)} with {buckets.best_count} "
        f"(smallest message {format_step(buckets.latency_seconds)}, {buckets.latency_origin})"
    )
