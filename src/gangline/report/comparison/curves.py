"""Loss curves of two runs on the same steps, and the step from which they differ. Pure."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import fsum

from gangline.report.comparison.types import ComparedCurves
from gangline.spec.record import Record

Edges = tuple[float, float]
"""Lower and upper edge of a band at a step."""
_IN_A_ROW = 3


def curves_of(base: Record, this: Record, bands: Mapping[int, Edges]) -> ComparedCurves | None:
    """Both curves at common steps; None if one run has no curve, or they share fewer than two steps.

    Args:
        base: Whose seeds made `bands`.
        this: Its own points carry the band where `base` was its base at birth.
        bands: Of the base by step.
    """
    if base.curve.metric != this.curve.metric:
        return None
    before, after = ({point.step: point.value for point in each.curve.points} for each in (base, this))
    own = {p.step: (p.low, p.high) for p in this.curve.points if p.low is not None and p.high is not None}
    known = {**bands, **(own if this.commit.base is not None and this.commit.base.run == base.run.id else {})}
    steps = sorted(before.keys() & after.keys())
    alike = len(steps) == min(len(before), len(after))
    if not alike:
        steps = _wider(sorted(before), sorted(after))
        before, after = _thinned_curve(before, steps), _thinned_curve(after, steps)
        known = _thinned_bands(bands, steps)
    if len(steps) < 2:
        return None
    sides = [known.get(step) for step in steps]
    return ComparedCurves(
        metric=this.curve.metric,
        steps=tuple(steps),
        base=tuple(before[step] for step in steps),
        this=tuple(after[step] for step in steps),
        low=tuple(side[0] if side else None for side in sides) if known else (),
        high=tuple(side[1] if side else None for side in sides) if known else (),
        apart_from=_apart_from([after[step] for step in steps], steps, sides),
        equal=alike and all(before[step] == after[step] for step in steps),
    )


def _thinned_curve(values: Mapping[int, float], steps: Sequence[int]) -> dict[int, float]:
    """Means over other shares of the steps.

    Args:
        values: Last step of a share to the mean over it, in step order; each share begins where the one before ends.
        steps: Last step of each wanted share; none is beyond the last of `values`.
    """
    return {step: _mean(values, start, step) for start, step in pairwise((0, *steps))}


def _mean(values: Mapping[int, float], start: int, end: int) -> float:
    overlaps = ((min(end, step) - max(start, left), values[step]) for left, step in pairwise((0, *values)))
    inside = [(width, value) for width, value in overlaps if width > 0]
    return fsum(width * value for width, value in inside) / sum(width for width, _ in inside)


def _thinned_bands(bands: Mapping[int, Edges], steps: Sequence[int]) -> dict[int, Edges]:
    """Bands of the base, averaged over wider shares; there the seeds differ no more than that."""
    covered = [step for step in steps if step <= max(bands, default=0)]
    low, high = (_thinned_curve({step: bands[step][side] for step in sorted(bands)}, covered) for side in (0, 1))
    return {step: (low[step], high[step]) for step in covered}


def _wider(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Steps of the coarser curve, up to the end of the shorter one."""
    if not one or not other:
        return []
    wide = max(one, other, key=lambda steps: steps[-1] / len(steps))
    return [step for step in wide if step <= min(one[-1], other[-1])]


def _apart_from(values: Sequence[float], steps: Sequence[int], sides: Sequence[Edges | None]) -> int | None:
    streak = 0
    judged = [(step, value, side) for step, value, side in zip(steps, values, sides, strict=True) if side is not None]
    for at, (_, value, (low, high)) in enumerate(judged):
        streak = 0 if low <= value <= high else streak + 1
        if streak == _IN_A_ROW:
            return judged[at - _IN_A_ROW + 1][0]
    return None
