"""Two courses beside each other, and the step from which they part. Pure."""

from collections.abc import Mapping

from gangline.report.compare_types import Curves
from gangline.spec.measured import CurvePoint
from gangline.spec.record import Record

_IN_A_ROW = 3


def curves_of(base: Record, this: Record, bands: Mapping[int, tuple[float, float]]) -> Curves | None:
    """None where one has no course, or where they share fewer than two steps.

    Args:
        base: Whose seeds made `bands`.
        this: Its own points carry the band where `base` was its base at birth.
        bands: Of the base by step.
    """
    before = {point.step: point for point in base.curve.points}
    common = [point for point in this.curve.points if point.step in before]
    if len(common) < 2 or base.curve.metric != this.curve.metric:
        return None
    sides = [_band(point, bands, is_base=_is_base(base, this)) for point in common]
    known = any(side is not None for side in sides)
    return Curves(
        metric=this.curve.metric,
        steps=tuple(point.step for point in common),
        base=tuple(before[point.step].value for point in common),
        this=tuple(point.value for point in common),
        low=tuple(side[0] if side else None for side in sides) if known else (),
        high=tuple(side[1] if side else None for side in sides) if known else (),
        apart_from=_apart_from(common, sides),
        equal=all(before[point.step].value == point.value for point in common),
    )


def _band(point: CurvePoint, bands: Mapping[int, tuple[float, float]], *, is_base: bool) -> tuple[float, float] | None:
    if is_base and point.low is not None and point.high is not None:
        return point.low, point.high
    return bands.get(point.step)


def _apart_from(points: list[CurvePoint], sides: list[tuple[float, float] | None]) -> int | None:
    streak = 0
    judged = [(point, side) for point, side in zip(points, sides, strict=True) if side is not None]
    for at, (point, (low, high)) in enumerate(judged):
        streak = 0 if low <= point.value <= high else streak + 1
        if streak == _IN_A_ROW:
            return judged[at - _IN_A_ROW + 1][0].step
    return None


def _is_base(base: Record, this: Record) -> bool:
    return this.commit.base is not None and this.commit.base.run == base.run.id
