"""Lines from the forecast of a plan: late updates, what its optimizer counts, buckets of gradients."""

from gangline.report.text import step_time
from gangline.spec.forecast import Forecast, GradientBuckets, UpdateTraffic
from gangline.units import format_bytes


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
    return [] if buckets is None else [f"            {'buckets':14}{buckets.count:>8}  {_exposed(buckets)}"]


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
