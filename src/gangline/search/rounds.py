"""Rounds of a population as trials: which members are enqueued next, and with which keys each is trained.

A member is a run from its parent's checkpoint to the end of its round. All of it follows from the journal and from the
records of runs, so that the driver after a killed one enqueues the same members.
"""

from collections.abc import Sequence

from gangline.errors import IntegrityError
from gangline.search.population import Member, next_round
from gangline.search.searches import trial_record
from gangline.search.study import SearchStudy
from gangline.spec.run_flags import stage
from gangline.spec.search import SearchRequest, Trial
from gangline.spec.search_table import Scalar
from gangline.storage.objects.protocol import ObjectStore


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
        if len(trials) < size or any(each.state in ("waiting", "running") and not each.run for each in trials):
            return True
        number, place = divmod(len(trials), size)
        before = trials[(number - 1) * size : number * size]
        if len(trials) >= self.num_trials or any(each.state in ("waiting", "running") for each in before):
            return False
        following = next_round(
            [Member(trial=each.number, settings=each.settings, value=next(iter(each.values), None)) for each in before],
            self._request.space, better=self._request.better[0], seed=self._request.seed, round_number=number,
        )  # fmt: skip
        for each in following[place:]:
            self._study.enqueue(each.settings, parent=each.parent, round=number)
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
