"""Rates of the device as the plan stage measures them, and forecasts that are made of them for models it never saw.

The rates are read against a large product and a large stream of random values. A forecast is made as before the first
run of a model: by rates of its own products, and by those of the 1B model alone. Bounds: rates within 10 % and 15 %;
no forecast off by more than 20 % of the median step, which the design wants for nine of ten after records, too.
"""

from statistics import median
from typing import Any

from figures import Report
from one_rank import apart, one_rank, plan_of, trained
from shapes import Model, Shapes

PRODUCT, STREAM, FORECAST = 0.10, 0.15, 0.20
STEPS, WARM_UP = 14, 4


def names(shapes: Shapes) -> tuple[str, ...]:
    kinds = ("own rates off by", "rates of 1B off by")
    forecasts = [f"{name}: {kind}" for name in shapes.unseen for kind in kinds]
    return ("largest product / ceiling", "product off random values by", "stream off a large one by", *forecasts)


def run(report: Report, shapes: Shapes) -> None:
    rates = apart(measured_rates, shapes, shapes.billion)
    of_device(report, shapes, rates)
    for name, model in shapes.unseen.items():
        own = apart(measured_rates, shapes, model)
        reported = {
            "own rates": apart(forecast, shapes, model, own),
            "rates of 1B": apart(forecast, shapes, model, rates),
        }
        seen = apart(steps_of, shapes, model)
        report.tell(name, {"forecasts": reported, "measured": seen, "model": model})
        for kind, each in reported.items():
            off = abs(each["step_seconds"] / seen["median"] - 1)
            report.add(f"{name}: {kind} off by", off, at_most=FORECAST, source="median step of this run")


def of_device(report: Report, shapes: Shapes, rates: Any) -> None:
    largest = max(rates.products, key=lambda each: each.rows * each.inner * each.columns)
    size = (largest.rows, largest.inner, largest.columns)
    top, source, product, stream = apart(ceilings, shapes, report.conditions["device"], size)
    report.tell("rates", {"measured": rates.to_json().decode(), "product": product, "stream": stream, "size": size})
    rate = largest.flops_per_second
    report.add("largest product / ceiling", rate / top, at_most=1.05, source=source)
    report.add("product off random values by", abs(rate / product - 1), at_most=PRODUCT, source="random values here")
    off = abs(rates.memory_bytes_per_second / stream - 1)
    report.add("stream off a large one by", off, at_most=STREAM, source="a stream that no cache holds")


def ceilings(shapes: Shapes, name: str, size: tuple[int, int, int]) -> tuple[float, str, float, float]:
    import torch
    from machine import ceiling, seconds, stream_rate

    rows, inner, columns = size
    left, right = (
        torch.randn(each, dtype=torch.bfloat16, device=shapes.device) for each in ((rows, inner), (inner, columns))
    )
    product = 2 * rows * inner * columns / seconds(lambda: left @ right, shapes.device)
    return *ceiling(shapes, name), product, stream_rate(shapes)


def measured_rates(shapes: Shapes, model: Model) -> Any:
    from planning_inputs import line_of, profile_of, rates

    return rates(shapes, line_of(shapes, model, steps=STEPS), profile_of(model))


def forecast(shapes: Shapes, model: Model, rates: Any) -> dict[str, Any]:
    """Forecast of one step, before anything was run."""
    from planning_inputs import inventory, line_of, profile_of

    from gangline.planner.choice import choose_plan
    from gangline.spec.config.site import Site

    found = choose_plan(
        line_of(shapes, model, steps=STEPS), Site(), inventory(shapes), profile_of(model), (), rates=rates
    )
    reported = found.forecast
    if reported.step_seconds is None:
        raise SystemExit(f"there is no forecast: {reported.missing}")
    return {"step_seconds": reported.step_seconds, "origin": reported.origin,
            "terms": {each.part: each.raw_seconds for each in reported.terms}}  # fmt: skip


def steps_of(shapes: Shapes, model: Model) -> dict[str, Any]:
    from gangline.line.results.rank_times import parts_of

    with one_rank(plan_of(shapes, model, steps=STEPS, clip_norm=None)) as context:
        reported = trained(context, lambda _: None)[WARM_UP:]
    return {"median": median(each["seconds"] for each in reported), "seconds": [each["seconds"] for each in reported],
            "parts": parts_of(reported)}  # fmt: skip
