"""Page of a plan for a model known by its shape: table, bound, risk, storage, and where each number comes from."""

from collections.abc import Iterator

from gangline.cli.output import wrap_facts
from gangline.cli.view.formula_table import formula_table, interruption_words, storage_lines
from gangline.cli.view.update_line import bucket_line, update_line
from gangline.line.stages.hypothetical import HypotheticalPlan, saves_of
from gangline.line.stages.optimizer_plan import optimizer_plans, predicted
from gangline.optim.plan.explain import explain_ranks, explain_stages
from gangline.planner.choice import PlanChoice
from gangline.planner.cost.memory import num_owners
from gangline.planner.cost.optimizer import matrix_updates, optimizer_model
from gangline.planner.layouts.layout import Layout
from gangline.report.facts import MARKS
from gangline.report.text import percent, step_time
from gangline.spec.config.line import Line
from gangline.spec.config.site import Site
from gangline.spec.devices import Inventory
from gangline.spec.forecast import Forecast
from gangline.spec.plan import Candidate
from gangline.units import format_bytes, format_count, format_seconds


def hypothetical_page(found: HypotheticalPlan, *, why: bool, terms: str | None = None, width: int | None = None) -> str:
    """The whole page; `width` None: no terminal."""
    line, choice, inventory = found.request.line, found.choice, found.inventory
    capacity = max(float(each.gpus.memory_bytes or 0) if each.gpus else 0.0 for each in inventory.kinds)
    settings = choice.search.settings if choice.search else {}
    table = formula_table(choice.candidates, settings, capacity_bytes=capacity, width=width, every=why)
    lines = [*_footer(choice, found.site), f"budget    {MARKS[found.budget.verdict]} {found.budget.reason}"]
    saves = storage_lines(saves_of(found.site, choice, line, found.profile), found.site.plan.saves_to)
    lines += [f"saves     {each}" for each in saves]
    lines += _optimizer(found, why=why)
    if found.links:
        lines.append(f"links     {found.links}")
    if found.certificate is not None:
        lines.append(f"network   {found.certificate.line}")
    explained = [choice.candidate(terms)] if terms else choice.candidates[:_EXPLAINED] if why else ()
    lines += [part for each in explained for part in why_lines(choice, each)]
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
    if (rule := line.optimizer.get("rule")) is None:
        return
    if (work := profile.matrix_work) is None:
        yield f"optimizer {rule}: its costs are not known before the run, it counts as the elementwise rule"
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


_EXPLAINED = 2
"""Plans whose numbers are printed one by one."""


def why_lines(choice: PlanChoice, candidate: Candidate) -> list[str]:
    """The terms of one row of the table, each with its origin."""
    forecast, settings = candidate.forecast, choice.search.settings if choice.search else {}
    lines = [f"known     {settings.get(candidate.name, candidate.name)}: {forecast.way}"]
    lines += [
        f"            {each.cause:14}{format_bytes(each.size_bytes):>8}  formula" for each in forecast.memory_causes
    ]
    lines += [f"            {each.part:14}{_step(each.seconds):>8}  {each.origin}" for each in forecast.terms]
    return [*lines, *bucket_line(forecast.buckets), *_sums(forecast)]


def _sums(forecast: Forecast) -> Iterator[str]:
    if forecast.memory_bytes is not None:
        yield f"            {'memory':14}{format_bytes(forecast.memory_bytes):>8}  sum of its causes"
    if forecast.step_seconds is not None:
        yield f"            {'step':14}{_step(forecast.step_seconds):>8}  sum of its parts"
    if forecast.restart is not None:
        yield f"            {'restart':14}{format_seconds(forecast.restart.seconds):>8}  {forecast.restart.origin}"
    if forecast.missing:
        yield f"            no step time: {forecast.missing}"


def _step(seconds: float) -> str:
    """Seconds of a step as the table has them: to two digits, less in milliseconds."""
    return f"{seconds:.2f} s" if seconds >= 1 else step_time(seconds)
