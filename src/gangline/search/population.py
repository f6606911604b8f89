"""Rounds of a population: who goes on from whose checkpoint, with which settings, and which trials are enqueued next.

Trial `round * size + place` is the member at `place`. A round ends at a step, and its members begin where their
parents ended: a member goes on by itself, but the worst fifth and all that failed take checkpoint and settings of one
of the best fifth, numbers times 0.8 or 1.25, choices drawn again. All of it follows from the journal and from the
records of runs, so that the driver after a killed one enqueues the same members.

Source:
    Jaderberg et al., "Population Based Training of Neural Networks" (2017), truncation selection and perturbation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from gangline.errors import IntegrityError
from gangline.search.searches import trial_record
from gangline.search.space import rounded
from gangline.search.study import SearchStudy
from gangline.spec.measurements import Better
from gangline.spec.run_flags import stage
from gangline.spec.search import Dimension, Scalar, SearchRequest, Trial
from gangline.storage.objects.protocol import ObjectStore

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


class PopulationRounds:
    """Members of one search, round by round."""

    def __init__(self, store: ObjectStore, request: SearchRequest, study: SearchStudy) -> None:
        self._store, self._request, self._study = store, request, study
        self._ends = (*request.rungs, request.steps)

    @property
    def num_trials(self) -> int:
        """Trials of all rounds."""
        return self._request.population * len(self._ends)

    @property
    def share(self) -> float:
        """Share of a whole training that one member trains."""
        return 1 / len(self._ends)

    def end_of(self, number: int) -> int:
        """Step at which a member's round ends."""
        return self._ends[min(number // self._request.population, len(self._ends) - 1)]

    def may_ask(self) -> bool:
        """Whether a member may begin; once a round is over, the members of the next one are enqueued.

        A round in which all members failed has no next one.
        """
        trials, size = self._study.trials(), self._request.population
        if len(trials) < size or any(trial.state in ("waiting", "running") and not trial.run for trial in trials):
            return True
        number, place = divmod(len(trials), size)
        before = trials[(number - 1) * size : number * size]
        if len(trials) >= self.num_trials or any(trial.state in ("waiting", "running") for trial in before):
            return False
        following = next_round(
            [Member(trial=trial.number, settings=trial.settings, value=next(iter(trial.values), None))
             for trial in before],
            self._request.space, better=self._request.better[0], seed=self._request.seed, round_number=number,
        )  # fmt: skip
        for member in following[place:]:
            self._study.enqueue(member.settings, parent=member.parent, round=number)
        return bool(following)

    def settings_of(self, trial: Trial) -> dict[str, Scalar]:
        """Keys that a member is trained with.

        Raises:
            IntegrityError: The record of its parent's run names no checkpoint.
        """
        end = self.end_of(trial.number)
        own: dict[str, Scalar] = {"evaluate.seeds": 1, "prove.replay_steps": 0}
        if end < self._request.steps:
            own["train.stop_at"] = end
        if trial.parent is not None:
            own["train.start.checkpoint"] = self._checkpoint(self._study.trials()[trial.parent])
        return own | trial.settings

    def _checkpoint(self, parent: Trial) -> str:
        record = trial_record(self._store, self._request, parent.run)
        checkpoint = None if record is None else stage(record, "train").outputs.get("checkpoint")
        if not isinstance(checkpoint, str):
            raise IntegrityError(f"{parent.run}: wanted the checkpoint of trial {parent.number}, found none")
        return checkpoint


def lineage(trials: Sequence[Trial], number: int) -> tuple[int, ...]:
    """Numbers of a member and of those that its weights come from, the first one first."""
    line: list[int] = []
    parent: int | None = number
    while parent is not None and parent not in line:
        line.append(parent)
        parent = trials[parent].parent
    return tuple(reversed(line))


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
