"""Time, money and memory of a shape, as far as they were measured or follow from arithmetic; else None."""

from collections.abc import Sequence
from statistics import median

from gangline.planner.candidates import Shape
from gangline.planner.pool import Pool
from gangline.spec.line import Line
from gangline.spec.plan import Forecast, Precision
from gangline.spec.profile import Measured, ModelProfile


def measured_seconds(
    history: Sequence[Measured], shape: Shape, pool: Pool, precision: Precision, global_batch: int
) -> tuple[float | None, int]:
    """Median step of equal runs on equal devices, and their number."""
    alike = (shape.strategy, shape.mesh, pool.device, pool.name, precision, global_batch)
    seconds = [
        each.step_seconds
        for each in history
        if (each.strategy, each.mesh, each.device, each.device_name or pool.name, each.precision, each.global_batch)
        == alike
    ]
    return (median(seconds), len(seconds)) if seconds else (None, 0)


def forecast_of(
    line: Line,
    pool: Pool,
    shape: Shape,
    precision: Precision,
    memory_bytes: float | None,
    *,
    profile: ModelProfile | None,
    history: Sequence[Measured],
) -> Forecast:
    """What is known about `shape`: the state by formula, the rest only from measured steps."""
    step, count = measured_seconds(history, shape, pool, precision, line.train.global_batch)
    wall = None if step is None else step * line.train.steps
    hours = 0.0 if pool.device == "cpu" else None if wall is None else wall * shape.mesh.world_size / 3600
    return Forecast(
        parameters=profile.parameters if profile else None,
        memory_bytes=None if memory_bytes is None else round(memory_bytes),
        step_seconds=step,
        wall_seconds=wall,
        gpu_hours=hours,
        money=_money(hours, pool),
        origin=_origin(count, profile),
    )


def _money(hours: float | None, pool: Pool) -> float | None:
    if hours == 0:
        return 0.0
    return None if hours is None or pool.price_per_hour is None else hours * pool.price_per_hour


def _origin(count: int, profile: ModelProfile | None) -> str:
    if count:
        return f"measured n={count}"
    return "formula" if profile else "unknown"
