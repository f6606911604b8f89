"""Lines that both pages of a plan print: its budget, numbers with their origin, late updates, buckets of gradients."""

from collections.abc import Sequence

from gangline.planner.choice import PlanChoice
from gangline.report.facts import MARKS
from gangline.report.text import step_time
from gangline.spec.forecast import Forecast, GradientBuckets, UpdateTraffic
from gangline.spec.plan import Candidate
from gangline.spec.record import Gate
from gangline.units import format_bytes, format_seconds

MOST_ROWS = 8
"""Rows of a table of plans, unless all are asked for."""
_EXPLAINED = 2
"""Plans whose numbers are printed one by one: the best, and the one it was hardest to choose from."""


def explained(choice: PlanChoice, *, why: bool, terms: str | None) -> Sequence[Candidate]:
    """Plans whose numbers are printed one by one: the one named `terms`, with `why` the best two, else none."""
    return [choice.candidate(terms)] if terms else choice.candidates[:_EXPLAINED] if why else ()


def budget_line(budget: Gate) -> str:
    """Answer of the gate `budget`."""
    return f"budget    {MARKS[budget.verdict]} {budget.reason}"


def number_line(name: str, number: str, origin: str) -> str:
    """One number of a plan, and where it comes from."""
    return f"            {name:14}{number:>8}  {origin}"


def restart_line(forecast: Forecast) -> list[str]:
    """Time of a restart; empty: it does not count."""
    if forecast.restart is None:
        return []
    return [number_line("restart", format_seconds(forecast.restart.seconds), forecast.restart.origin)]


def update_line(updates: UpdateTraffic | None) -> list[str]:
    """Line about the exchange of updates; empty: there is none, or its times are not known."""
    if updates is None:
        return []
    granted = step_time(updates.hiding_seconds) if updates.hiding_seconds else "no"
    line = (
        f"{granted} computing counts as hiding them ([plan] overlap of site.toml); if all of the pass did, it would "
        f"wait for {step_time(updates.least_exposed_seconds)}"
    )
    return [f"{'':9}{line}"]


def forecast_line(forecast: Forecast) -> list[str]:
    """Why the forecast's seconds of the optimizer are not those of the plan of owners; empty: it has none."""
    term = next((each for each in forecast.terms if each.part == "optimizer"), None)
    if term is None:
        return []
    rest = "with the exchange and all other parameters"
    return [f"forecast {step_time(term.seconds)} of the step above ({term.origin}), {rest}"]


def bucket_line(buckets: GradientBuckets | None) -> list[str]:
    """`buckets  3  of 26 MB, torch's own; 5 ms after backward on a link of their own ...`; empty: there are none."""
    return [] if buckets is None else [number_line("buckets", str(buckets.count), _exposed(buckets))]


def _exposed(buckets: GradientBuckets) -> str:
    whose = "given" if buckets.is_given else "torch's own"
    size = f"of {format_bytes(buckets.size_bytes)}, {whose}"
    if buckets.exposed_seconds is None or buckets.best_exposed_seconds is None or buckets.latency_seconds is None:
        return f"{size}; what they leave exposed is not known: no such message was measured, and no latency is given"
    return (
        f"{size}; {step_time(buckets.exposed_seconds)} after backward on a link of their own, "
        f"{step_time(buckets.best_exposed_seconds)} with {buckets.best_count} "
        f"(smallest message {step_time(buckets.latency_seconds)}, {buckets.latency_origin})"
    )
