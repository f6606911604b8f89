"""Lines about a matrix rule from the forecast of a plan: what more computing would hide, what its optimizer counts."""

from gangline.report.text import step_time
from gangline.spec.forecast import Forecast, UpdateTraffic


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
