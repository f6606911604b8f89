"""Rounds of a population: who goes on from whose checkpoint, with which settings. Pure, equal for every driver.

Trial `round * size + place` is the member at `place`. A round ends at a step, and its members begin where their
parents ended: a member goes on by itself, but the worst fifth and all that failed take checkpoint and settings of one
of the best fifth, numbers times 0.8 or 1.25, choices drawn again.

Source:
    Jaderberg et al., "Population Based Training of Neural Networks" (2017), truncation selection and perturbation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from gangline.search.space import rounded
from gangline.spec.measurements import Better
from gangline.spec.search_table import Dimension, Scalar

FACTORS = (0.8, 1.25)
SHARE = 5
"""One member in so many is replaced after a round, at least one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """One member at the end of its round."""

    trial: int
    settings: Mapping[str, Scalar]
    value: float | None
    """Metric at the end of the round; none: it failed and has no checkpoint."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NextMember:
    """What takes a place in the next round."""

    parent: int
    """Trial whose checkpoint it begins from."""
    settings: dict[str, Scalar]


def round_ends(*, steps: int, trials: int, size: int, min_steps: int | None) -> tuple[int, ...]:
    """Step at which each round ends, the last one with the training; without `min_steps` all trials are used."""
    each = min_steps or -(-steps // max(trials // size, 1))
    return (*range(each, steps, each), steps)


def next_round(
    members: Sequence[Member], space: Mapping[str, Dimension], *, better: Better, seed: int, round_number: int
) -> list[NextMember]:
    """Members of round `round_number`, by place, from those of the round before; none where all of these failed.

    Args:
        members: By place, all at the end of their round.
        space: Keys that may change.
        better: Direction of the metric.
        seed: Root of the randomness of the search.
        round_number: From 1 on.
    """
    sign = 1.0 if better == "lower" else -1.0
    values = {place: sign * each.value for place, each in enumerate(members) if each.value is not None}
    ranking = sorted(values, key=lambda place: (values[place], place))
    count = max(1, len(members) // SHARE)
    best, failed = ranking[:count], len(members) - len(ranking)
    worst = set(ranking[len(ranking) - max(count - failed, 0) :]) - set(best)
    following = []
    for place, member in enumerate(members if ranking else ()):
        if place in values and place not in worst:
            following.append(NextMember(parent=member.trial, settings=dict(member.settings)))
            continue
        draw = Random(f"{seed}/{round_number}/{place}")  # noqa: S311  # proposals, not secrets
        parent = members[draw.choice(best)]
        following.append(NextMember(parent=parent.trial, settings=_explored(parent.settings, space, draw)))
    return following


def _explored(settings: Mapping[str, Scalar], space: Mapping[str, Dimension], draw: Random) -> dict[str, Scalar]:
    """Settings near those of a parent, in the order of the space, so that equal seeds draw alike."""
    return {
        key: draw.choice(axis.choices) if axis.choices else _moved(settings[key], axis, draw)
        for key, axis in sorted(space.items())
    }


def _moved(value: Scalar, axis: Dimension, draw: Random) -> Scalar:
    """The number times a factor, on the grid of its range; a whole one moves by a step at least."""
    assert isinstance(value, (int, float)), value
    assert axis.low is not None, axis
    assert axis.high is not None, axis
    factor = draw.choice(FACTORS)
    step = axis.step or (1 if axis.is_whole else None)
    moved: float = value * factor
    if step is not None:
        places = round((moved - axis.low) / step) - (before := round((value - axis.low) / step))
        moved = axis.low + (before + (places or (1 if factor > 1 else -1))) * step
        most = axis.low + (axis.high - axis.low) // step * step
    else:
        most = axis.high
    return rounded(axis, min(max(moved, axis.low), most))
