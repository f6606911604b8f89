"""Loss curve of a run as 64 points, each the mean of an equal share of the steps. Pure."""

import io
import math
from array import array
from bisect import bisect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from statistics import fmean
from typing import Any

from gangline.line.results.band import learn_curve_bands
from gangline.metrics.step_table import StepTable
from gangline.spec.gang.status import read_event
from gangline.spec.measurements import BrokenSteps, Curve, CurvePoint
from gangline.spec.output_limits import MOST_STEPS

POINTS = 64


def read_lines(text: bytes) -> list[dict[str, Any]]:
    """Objects of a JSON-lines file, without a last line that a crash cut off."""
    return list(each_line(text))


def each_line(text: bytes | Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The objects of `read_lines` one at a time, for long files."""
    for line in io.BytesIO(text) if isinstance(text, bytes) else text:
        if (event := read_event(line)) is not None:
            yield event


def by_step(
    rows: Iterable[Mapping[str, Any]],
    seed: int | None = None,
    *,
    names: Collection[str] | None = None,
    most_steps: int = MOST_STEPS,
) -> StepTable:
    """Numbers of rows by step, in step order; a row with an earlier step replaces all rows from that step on.

    Raises:
        IntegrityError: There are more than `most_steps` steps.
    """
    table = StepTable(names, most_steps=most_steps)
    for row in rows:
        if seed is None or row.get("seed", seed) == seed:
            table.add(row)
    return table


def thin(losses: Mapping[int, float], steps: int) -> list[tuple[int, float]]:
    """(last step, mean) of each of at most 64 equal shares of `steps` steps, without shares that have no value.

    The last share ends at the last step that has a value; steps after `steps` are left out.
    """
    num_points = min(POINTS, max(steps, 1))
    shares: dict[int, list[float]] = {}
    last = 0
    for step, loss in losses.items():
        if math.isfinite(loss) and step <= steps:
            shares.setdefault(max(0, step - 1) * num_points // max(steps, 1), []).append(loss)
            last = max(last, step)
    return [(min((index + 1) * steps // num_points, last), fmean(values)) for index, values in sorted(shares.items())]


def final_loss(losses: Mapping[int, float]) -> tuple[int, float] | None:
    """(last step, mean of the last 64th of the steps up to it); None without a finite loss.

    Of a training that made all its steps it is the last point of the curve.
    """
    finite = {step: loss for step, loss in losses.items() if math.isfinite(loss)}
    if not finite:
        return None
    last = max(finite)
    return last, fmean(loss for step, loss in finite.items() if step > last - max(1, last // POINTS))


def build_curve(
    losses: Mapping[int, float], *, steps: int, base: Curve | None, floor_percent: float, origin: str
) -> Curve:
    """Curve of a run, with the band of the base at each point if the base has bands."""
    bands = learn_curve_bands(base.seed_points, floor_percent=floor_percent, origin=origin) if base else ()
    by_step = {point.step: band for point, band in zip(base.points if base else (), bands, strict=False)}
    points = []
    for step, value in thin(losses, steps):
        band = by_step.get(step)
        points.append(
            CurvePoint(step=step, value=value, low=band.low if band else None, high=band.high if band else None)
        )
    return Curve(points=tuple(points))


def losses_of(rows: StepTable) -> dict[int, float]:
    """Loss by step, of rows that have a finite one."""
    return {step: loss for step, loss in rows.column("loss") if math.isfinite(loss)}


def join_broken(steps: Sequence[int], finite: Collection[int]) -> tuple[BrokenSteps, ...]:
    """Steps whose loss is not finite, in order, joined where no step with a finite one lies between them.

    Of more than 64 such places those of the same 64th of the steps are one.
    """
    if not steps:
        return ()
    others, last = array("q", sorted(finite)), steps[-1]
    runs = [[*run] for _, run in groupby(steps, lambda step: bisect(others, step))]
    if len(runs) > POINTS:
        runs = [[*run] for _, run in groupby(steps, lambda step: step * POINTS // (last + 1))]
    return tuple(BrokenSteps(first=run[0], last=run[-1], count=len(run)) for run in runs)


def seed_values(losses: Sequence[tuple[int, float]], curve: Curve, *, steps: int) -> tuple[float, ...]:
    """Losses of another seed at the points of `curve`, up to the first point that it has none of."""
    found = dict(thin(dict(losses), steps))
    places = takewhile(found.__contains__, (point.step for point in curve.points))
    return tuple(found[place] for place in places)
